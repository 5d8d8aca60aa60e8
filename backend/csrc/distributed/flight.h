#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/distributed/lane.h"
#include "csrc/distributed/outcome.h"

// From the call of a collective to its end: what the transport will be asked
// for, and what the caller holds meanwhile.

namespace openreg {

// [flight-handshake] What both ends of a transfer must agree on.
// Each tells the other when it is called, before any stream comes to it. The
// transport would end the process where sizes differ, or add up what does not
// belong together, so nothing is handed to it before both have agreed, with one
// exception: a part may be offered by a tag that differs where sizes do.
class Handshake {
 public:
  static constexpr int64_t most_carried = 1 << 16;
  static constexpr int64_t most_offered = (1 << 21) - 1;
  struct Terms {
    c10d::OpType type;
    c10::ScalarType dtype;
    int64_t elements;  // that it sends
    int64_t detail;    // root and operator, or the number of a message
    int64_t returns = elements;  // that it expects back
    bool carry = false;          // the part is in the message
    int offer = 0;               // or the tag by which it is offered before
  };
  struct Side {
    int rank;  // -1: whoever tells first
    Terms terms;
    at::Tensor bytes{};  // that the message carries
  };

  struct Packet {
    at::Tensor words;
    c10::intrusive_ptr<c10d::Work> work;
  };
  static Packet tell(c10d::Backend& transport, const Side& side, int tag);
  // Asks for what `rank` tells, before it does or after.
  static Packet ask(c10d::Backend& transport, int rank, int tag);

  // Waits for what is expected. Raises an error that names both if they differ.
  void await();
  void check(const Side& expected, const Side& got) const;
  // [/flight-handshake]

  // `lost` is in the tags of offers, and others it makes after one is not met.
  Handshake(
      int rank,
      Packet told,
      Packet asked,
      const std::optional<Side>& expected,
      std::shared_ptr<std::atomic<int>> lost)
      : rank_(rank),
        expected_(expected),
        lost_(std::move(lost)),
        told_(std::move(told)),
        asked_(std::move(asked)),
        agreed_(!told_.work) {}

  // Waits for the one message that is expected, and says what it will be.
  Side await_message();
  // Whether `post` comes before `await`. If not after it, it comes again.
  bool offers() const {
    return expected_ && expected_->terms.offer != 0;
  }
  // Sends `from` and receives `to`, where the message does not do so.
  void post(
      c10d::Backend& transport,
      std::vector<at::Tensor> to,
      std::vector<at::Tensor> from,
      int tag);
  // Waits for both.
  void finish();
  void abort();

  // Whether the transport is done with the memory of its messages.
  bool is_over() const {
    return over_;
  }
  int source() const {
    return source_;
  }

 private:
  static void await(const Packet& packet);
  void settle(const Terms& theirs);

  const int rank_;
  std::optional<Side> expected_;
  const std::shared_ptr<std::atomic<int>> lost_;
  Packet told_;
  Packet asked_;
  c10::intrusive_ptr<c10d::Work> sent_;
  c10::intrusive_ptr<c10d::Work> received_;
  bool agreed_;  // or whoever receives looks for itself
  std::atomic<bool> over_ = false;
  std::atomic<int> source_ = -1;
};

// [flight-operation] One collective, as the transport will be asked for it.
struct Operation {
  using Post =
      std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend& transport)>;

  const char* name;  // as in a trace
  c10d::OpType type;
  std::vector<at::Tensor> inputs;   // the device's, only read
  std::vector<at::Tensor> results;  // and written
  Post post{};                      // on aliases that it owns
  int64_t detail = 0;               // of the terms, too
  std::function<void()> finish{};   // on the aliases, when all have ended
  std::shared_ptr<Handshake> handshake{};  // that all but offers wait for

  // The inputs, or the results of a rank that has no inputs.
  const std::vector<at::Tensor>& tensors() const {
    return inputs.empty() ? results : inputs;
  }
};
// [/flight-operation]

// Operations that go to the device in one kernel: one, or those between the
// beginning and the end of a coalescing.
class Flight {
 public:
  using Launch = std::function<void(Flight&)>;

  Flight(Launch launch, c10::EventFlag times)
      : begin(c10::kPrivateUse1, times),
        end(c10::kPrivateUse1, times),
        launch_(std::move(launch)) {}

  // Launches it, unless that has been done.
  void depart() {
    if (const auto launch = std::exchange(launch_, nullptr)) {
      launch(*this);
    }
  }

  std::vector<Operation> operations;  // until it is launched
  bool waits = false;                 // the caller does, at once
  const std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
  c10::Event begin;  // recorded if times are asked for
  c10::Event end;
  std::optional<c10::Stream> stream;  // that it ends on

 private:
  Launch launch_;
};

// Launches the operations of `flight`, after what the caller's current stream
// and `lane` have been given so far.
void launch_flight(
    Flight& flight,
    const Lane& lane,
    const c10::intrusive_ptr<c10d::Backend>& transport);

// [flight-work] What the caller of a collective gets, and waits on.
class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(
      int rank, const Operation& operation, std::shared_ptr<Flight> flight)
      : Work(rank, operation.type),
        name_(operation.name),
        results_(operation.results),
        handshake_(operation.handshake),
        flight_(std::move(flight)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override {
    return results_;
  }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void blockCurrentStream() override {
    synchronize();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  // [/flight-work]

 private:
  void wait_on_host(std::chrono::milliseconds timeout) const;

  const char* const name_;
  const std::vector<at::Tensor> results_;
  const std::shared_ptr<Handshake> handshake_;
  const std::shared_ptr<Flight> flight_;
};

}  // namespace openreg
