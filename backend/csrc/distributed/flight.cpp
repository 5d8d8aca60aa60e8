#include "csrc/distributed/flight.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>

#include "csrc/aten/forms/alias.h"
#include "csrc/graph/capture.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/launch.h"

namespace openreg {
namespace {

using c10::Stream;
using c10::StreamGuard;

std::string describe(const Operation& operation) {
  std::ostringstream text;
  text << operation.name;
  if (!operation.tensors().empty()) {
    const auto& tensor = operation.tensors().front();
    text << " of " << tensor.scalar_type() << tensor.sizes() << " on "
         << tensor.device();
  }
  return text.str();
}

std::string describe(const Handshake::Terms& terms) {
  return c10::str(
      c10d::opTypeToString(terms.type),
      " of ",
      terms.elements,
      " elements of ",
      terms.dtype);
}

// What the device owns of a flight. It may run many times, if a graph has it.
class Kernel {
 public:
  Kernel(
      const Operation* operations,
      size_t count,
      std::shared_ptr<Outcome> outcome,
      c10::intrusive_ptr<c10d::Backend> transport)
      : outcome_(std::move(outcome)), transport_(std::move(transport)) {
    for (const Operation& each : c10::ArrayRef(operations, count)) {
      parts_.push_back({each, describe(each)});
      parts_.back().of.inputs = parts_.back().of.results = {};
    }
    // What waits for nobody comes first.
    std::ranges::stable_partition(parts_, offers);
  }
  // The device drops what is behind a failed kernel.
  ~Kernel() {
    if (!has_run_) {
      outcome_->give_up();
    }
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // [flight-kernel] Posts all operations to the transport, and waits for each.
  // It does so even after an error, as memory is in use until the end.
  void run() {
    // On the caller's thread a profile would have what the transport does.
    const at::DisableRecordFunctionGuard unseen;
    std::exception_ptr error;
    for (Part& part : parts_) {
      attempt(part, error, [&] {
        if (part.of.handshake && !offers(part)) {
          part.of.handshake->await();
        }
        part.work = part.of.post ? part.of.post(*transport_) : nullptr;
        part.posted = true;
      });
    }
    for (Part& part : parts_) {
      if (std::exchange(part.posted, false)) {
        attempt(part, error, [&] { end(part); });
      }
    }
    has_run_ = true;
    outcome_->finish(error);
  }
  // [/flight-kernel]

 private:
  struct Part {
    Operation of;  // without its tensors, which belong to the caller
    std::string call;
    c10::intrusive_ptr<c10d::Work> work{};
    bool posted = false;
  };

  static bool offers(const Part& part) {
    return part.of.handshake && part.of.handshake->offers();
  }

  void end(Part& part) const {
    const bool offered = offers(part);
    if (part.of.handshake) {
      part.of.handshake->await();
    }
    if (offered && !offers(part)) {
      part.of.post(*transport_);
    }
    if (const auto work = std::exchange(part.work, nullptr)) {
      work->wait();
    }
    if (part.of.finish) {
      const KernelScope scope(host_memory);
      part.of.finish();
    }
  }

  template <typename Step>
  void attempt(const Part& part, std::exception_ptr& error, Step&& step) const {
    try {
      step();
    } catch (const std::exception& raised) {
      const auto* const ours = dynamic_cast<const c10::Error*>(&raised);
      const auto text = c10::str(
          "openreg: ",
          part.call,
          " failed on rank ",
          transport_->getRank(),
          " of ",
          transport_->getSize(),
          ": ",
          ours ? ours->what_without_backtrace() : raised.what());
      if (!error) {
        error = std::make_exception_ptr(
            c10::DistBackendError({__func__, __FILE__, __LINE__}, text));
      }
    }
  }

  const std::shared_ptr<Outcome> outcome_;
  const c10::intrusive_ptr<c10d::Backend> transport_;
  std::vector<Part> parts_;
  bool has_run_ = false;
};

void order(const Stream& before, const Stream& after) {
  c10::Event event(c10::kPrivateUse1);
  event.record(before);
  event.block(after);
}

// Nobody gets a block of these until `stream` has come so far.
void keep(const std::vector<at::Tensor>& tensors, const Stream& stream) {
  for (const auto& tensor : tensors) {
    device_allocator()->recordStream(tensor.storage().data_ptr(), stream);
  }
}

// [flight-launch] Collectives run on the group's stream, between two events.
// A message may wait for one that comes later, so each has a stream for itself.
void launch_on(
    const Stream& lane,
    Flight& flight,
    const c10::intrusive_ptr<c10d::Backend>& transport) {
  const auto operations = std::exchange(flight.operations, {});
  const auto device = lane.device_index();
  const bool messages = std::ranges::all_of(
      operations, [](const auto& each) { return isP2POp(each.type); });
  // Where each launch waits, messages that cross are on their way together.
  const bool waits = orStreamRunsInline(handle_of(lane)) != 0;
  const size_t kernels = messages && !waits ? operations.size() : 1;
  flight.outcome->expect(kernels);
  std::vector<Stream> streams;
  for (size_t i = 0; i < kernels; ++i) {
    const auto own = messages ? std::make_shared<Lane>(device) : nullptr;
    const Stream stream = own ? own->stream() : lane;
    const auto kernel = std::make_shared<Kernel>(
        &operations[i], operations.size() / kernels, flight.outcome, transport);
    order(get_stream(device), stream);
    if (i == 0 && flight.begin.flag() == c10::EventFlag::BACKEND_DEFAULT) {
      flight.begin.record(stream);
    }
    const StreamGuard guard(stream);
    const Call call(device, operations[i].name);
    launch(call, Runs::kQueued, [kernel, own] { kernel->run(); });
    streams.push_back(stream);
  }
  flight.stream = streams.back();
  for (const Stream& stream : streams) {
    order(stream, *flight.stream);
  }
  flight.end.record(*flight.stream);
  for (const auto& operation : operations) {
    keep(operation.inputs, *flight.stream);
    keep(operation.results, *flight.stream);
  }
}
// [/flight-launch]

}  // namespace

// [flight-here] What its caller waits for at once runs on the caller's stream.
// A second stream would wake two more threads. The call is still in the group's
// order: after what the group has launched, and before what it will launch.
void launch_flight(
    Flight& flight,
    const Lane& lane,
    const c10::intrusive_ptr<c10d::Backend>& transport) {
  const Stream all = lane.stream(), caller = get_stream(all.device_index());
  if (!flight.waits || capture_of(handle_of(caller)) != nullptr) {
    launch_on(all, flight, transport);
    return;
  }
  order(all, caller);
  launch_on(caller, flight, transport);
  order(caller, all);
}
// [/flight-here]

static Handshake::Terms read(const at::Tensor& words) {
  return *static_cast<const Handshake::Terms*>(words.const_data_ptr());
}

Handshake::Packet Handshake::tell(
    c10d::Backend& transport, const Side& side, int tag) {
  const size_t carried = side.bytes.defined() ? side.bytes.nbytes() : 0;
  const auto size = static_cast<int64_t>(sizeof(Terms) + carried);
  std::vector words{at::empty({size}, at::kByte)};
  auto* const to = static_cast<Terms*>(words[0].mutable_data_ptr());
  *to = side.terms;
  if (carried > 0) {
    std::memcpy(to + 1, side.bytes.const_data_ptr(), carried);
  }
  return {words[0], transport.send(words, side.rank, tag)};
}

Handshake::Packet Handshake::ask(c10d::Backend& transport, int rank, int tag) {
  const int64_t most = sizeof(Terms) + most_carried;
  std::vector words{at::empty({most}, at::kByte)};
  const auto work = rank < 0 ? transport.recvAnysource(words, tag)
                             : transport.recv(words, rank, tag);
  return {words[0], work};
}

void Handshake::abort() {
  for (const auto* const packet : {&told_, &asked_}) {
    if (packet->work) {
      packet->work->abort();
    }
  }
}

void Handshake::await(const Packet& packet) {
  TORCH_CHECK_WITH(DistBackendError, packet.work->wait(), "group was aborted.");
}

Handshake::Side Handshake::await_message() {
  await(asked_);
  over_ = true;
  source_ = expected_->rank < 0 ? asked_.work->sourceRank() : expected_->rank;
  return {source_, read(asked_.words)};
}

void Handshake::await() try {
  if (agreed_) {
    return;
  }
  // What is not sent when its buffer goes is never sent, so wait first.
  await(told_);
  over_ = !expected_;
  if (expected_) {
    const Side got = await_message();
    settle(got.terms);
    check(*expected_, got);
  }
  agreed_ = true;
} catch (...) {
  sent_ = received_ = nullptr;  // the memory is the caller's again
  throw;
}

// [flight-offer] A part may be offered before ranks have agreed on its size.
// Gloo would end the process where sizes differ, but tells tags apart. The part
// is sent first, since Gloo's own thread then does so when the other asks for
// it; after that, this thread might have to, and would hold up what comes.
void Handshake::post(
    c10d::Backend& transport, Tensors to, Tensors from, int tag) {
  tag = offers() ? expected_->terms.offer : tag;
  if (offers() || !read(told_.words).carry) {
    sent_ = transport.send(from, expected_->rank, tag);
  }
  if (offers() || !read(asked_.words).carry) {
    received_ = transport.recv(to, expected_->rank, tag);
  } else {
    const auto* const words = asked_.words.const_data_ptr<uint8_t>();
    std::memcpy(to[0].data_ptr(), words + sizeof(Terms), to[0].nbytes());
  }
}
// [/flight-offer]

// [flight-settle] Offers by one tag meet, whatever else differs.
// Gloo takes back none that does not, so from then on, tags are others: their
// highest part counts what was lost, by the rank that has lost more.
void Handshake::settle(const Terms& theirs) {
  int& ours = expected_->terms.offer;
  if (const int last = std::max(ours, theirs.offer); ours != theirs.offer) {
    *lost_ = (last >> 25) % 32 + 1;
    sent_ = received_ = nullptr;
    ours = 0;
  }
  finish();
}
// [/flight-settle]

void Handshake::finish() {
  for (auto* const posted : {&received_, &sent_}) {
    if (const auto work = std::exchange(*posted, nullptr)) {
      work->wait();
    }
  }
}

void Handshake::check(const Side& expected, const Side& got) const {
  Terms ours = expected.terms, theirs = got.terms;
  if (ours.elements == theirs.elements) {  // unless the other way they differ
    ours.elements = ours.returns;
    theirs.elements = theirs.returns;
  }
  TORCH_CHECK_WITH(
      DistBackendError,
      ours.type == theirs.type && ours.dtype == theirs.dtype &&
          ours.elements == theirs.elements,
      "rank ",
      rank_,
      " has ",
      describe(ours),
      ", and rank ",
      got.rank,
      " has ",
      describe(theirs),
      ". All ranks of a group make the same calls, in one order.");
  TORCH_CHECK_WITH(
      DistBackendError,
      ours.detail == theirs.detail,
      "ranks ",
      rank_,
      " and ",
      got.rank,
      " name different roots or operators.");
}

bool CollectiveWork::isCompleted() {
  flight_->depart();
  return flight_->outcome->is_finished();
}

bool CollectiveWork::isSuccess() const {
  return flight_->outcome->is_finished() && !flight_->outcome->error();
}

std::exception_ptr CollectiveWork::exception() const {
  return flight_->outcome->error();
}

// Only the message itself says whose it was.
int CollectiveWork::sourceRank() const {
  flight_->depart();
  wait_on_host(kNoTimeout);
  return handshake_ ? handshake_->source() : -1;
}

void CollectiveWork::wait_on_host(std::chrono::milliseconds timeout) const {
  TORCH_CHECK(
      capture_of(current_stream(flight_->stream->device_index())) == nullptr,
      "openreg: ",
      name_,
      " cannot be waited for by the host in a capture, which runs nothing.");
  const bool ended =
      without_interpreter_lock([&] { return flight_->outcome->wait(timeout); });
  TORCH_CHECK_WITH(
      DistBackendError,
      ended,
      "openreg: ",
      name_,
      " has not ended within ",
      timeout.count(),
      " ms.");
}

// [flight-wait] The stream waits; the host waits only where it must.
bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  flight_->depart();
  if (timeout > kNoTimeout || opType_ == c10d::OpType::BARRIER) {
    wait_on_host(timeout);
  }
  synchronize();
  return true;
}

void CollectiveWork::synchronize() {
  flight_->depart();
  flight_->outcome->promise();
  flight_->end.block(get_stream(flight_->stream->device_index()));
}
// [/flight-wait]

// [flight-future] A device's future is complete once the work is launched.
// Its events, recorded now, make users of its value wait. What was gathered is
// stacked, as DDP's hooks expect from NCCL.
c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  flight_->depart();
  flight_->outcome->promise();
  const StreamGuard guard(*flight_->stream);
  const bool gathered = opType_ == c10d::OpType::ALLGATHER;
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()),
      std::vector<c10::Device>{flight_->stream->device()});
  future->markCompleted(gathered ? std::vector{at::stack(results_)} : results_);
  return future;
}
// [/flight-future]

// In milliseconds, from the stream's turn to its end.
float CollectiveWork::getDuration() const {
  TORCH_CHECK(
      flight_->begin.was_marked_for_recording(),
      "openreg: ",
      name_,
      " was not timed. Call _enable_collectives_timing() of its group before.");
  return static_cast<float>(flight_->begin.elapsedTime(flight_->end));
}

}  // namespace openreg
