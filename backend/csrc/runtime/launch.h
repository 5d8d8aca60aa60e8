#pragma once

#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

// Every kernel reaches the device through one function, `launch`, which is told
// where the kernel goes and how it may run.

namespace openreg {

// [launch-call] The device and the stream of a call, looked up once.
struct Call {
  // `operator_name` is as in "aten::add.Tensor", and stays readable, as
  // literals do.
  Call(c10::DeviceIndex index, const char* operator_name)
      : device(index), name(operator_name), stream(current_stream(index)) {}

  // Whether a kernel would run on this thread without waiting. There is no use
  // in preparing it for the queue then.
  bool runs_inline() const {
    return orStreamRunsInline(stream) != 0;
  }

  c10::DeviceIndex device;
  const char* name;
  orStream_t stream;
};

// How a kernel may run.
enum class Runs {
  // On the calling thread, when its turn has come. It may refuse its arguments,
  // and make its results; these may be read when `launch` returns.
  kInTurn,
  // When the stream comes to it, on a thread of the stream's. So it refuses
  // nothing, and owns all that it needs.
  kQueued,
};

// Only a kernel that is known to refuse nothing may be queued.
inline Runs queued_if(bool cannot_refuse) {
  return cannot_refuse ? Runs::kQueued : Runs::kInTurn;
}
// [/launch-call]

// [launch-turn] While this object lives, its thread has the stream to itself.
class Turn {
 public:
  explicit Turn(const Call& call) : stream_(call.stream) {
    OPENREG_CHECK_WAIT(orStreamBeginTurn(stream_, call.name));
  }
  ~Turn() {
    orStreamEndTurn(stream_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const orStream_t stream_;
};
// [/launch-turn]

// Work that a stream owns until it has run.
struct QueuedWork {
  virtual ~QueuedWork() = default;
  virtual void run() = 0;
  int threads = 1;  // that it may use, as many as the thread that launched it
};

// What `launch` does with a kernel that may be queued.
OPENREG_EXPORT void hand_to_stream(
    const Call& call, std::unique_ptr<QueuedWork> work);

// [launch-kernel] Runs `kernel` in the order of the stream of `call`.
// Raises what it raises on this thread; an error that comes later makes the
// device fail. No Storage, generator or Python object may be among what queued
// work owns: a stream's order alone keeps memory alive.
template <typename Kernel>
C10_ALWAYS_INLINE void launch(const Call& call, Runs runs, Kernel&& kernel) {
  using Owned = std::remove_cvref_t<Kernel>;
  struct Work final : QueuedWork {
    explicit Work(Kernel&& k) : kernel(std::forward<Kernel>(k)) {}
    void run() override {
      kernel();
    }
    Owned kernel;
  };
  if (runs == Runs::kInTurn) {
    const Turn turn(call);
    kernel();
  } else {
    hand_to_stream(call, std::make_unique<Work>(std::forward<Kernel>(kernel)));
  }
}
// [/launch-kernel]

}  // namespace openreg
