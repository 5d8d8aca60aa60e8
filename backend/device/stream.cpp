#include <algorithm>

#include "device/device.h"
#include "device/stream.h"
#include "device/worker.h"

// Streams: who may run work of one now, and who waits for it.

namespace emulator {

std::atomic<Launch> launch_mode{Launch::kAuto};
constinit thread_local ThreadState this_thread{};

uint64_t next_thread_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// [dev-settle] Completes the event marks at the front of an idle stream.
// The caller holds the mutex.
void settle(orStream& stream) {
  while (auto* const next = next_in_turn<MomentRef>(stream)) {
    const MomentRef moment = std::move(*next);
    stream.queue.pop_front();
    stream.state.fetch_sub(1);
    moment->complete();  // now whoever waited finds the stream idle
  }
}

// Whoever waits looks at the front of the queue again.
void resume(orStream& stream) {
  const std::lock_guard lock(stream.mutex);
  settle(stream);
  stream.changed.notify_all();
}

// Nothing is marked where nothing is pending, nor inside one's own turn.
MomentRef mark(orStream& stream) {
  if (!is_idle(stream) && !holds(stream)) {
    MomentRef moment = std::make_shared<Moment>();
    const std::lock_guard lock(stream.mutex);
    if (!is_ending()) {
      stream.queue.emplace_back(moment);
      stream.state.fetch_add(1);
      settle(stream);
      return moment;
    }
  }
  return std::make_shared<Moment>(now());
}
// [/dev-settle]

// [dev-begin-turn] A thread that cannot have the turn at once queues for it.
// No worker is needed: whoever ends what was before wakes this thread.
orError_t begin_turn(orStream& stream, const char* name) {
  if (take_turn(stream)) {
    return orSuccess;
  }
  if (const orError_t error = check_not_captured(stream, name)) {
    return error;
  }
  Turn turn;
  std::unique_lock lock(stream.mutex);
  if (is_ending()) {
    return fail(orErrorDeviceFailed, "the process is ending");
  }
  stream.queue.emplace_back(&turn);
  stream.state.fetch_add(1);
  settle(stream);
  stream.changed.wait(lock, [&] {
    Turn** const next = next_in_turn<Turn*>(stream);
    return turn.dropped || (next != nullptr && *next == &turn);
  });
  if (turn.dropped) {
    return fail(orErrorDeviceFailed, "the process is ending");
  }
  stream.queue.pop_front();
  stream.state.fetch_or(kBusy);
  lock.unlock();
  stream.holder.store(number_thread());
  stream.depth = 1;
  const orError_t error = check_device(*stream.device);
  if (error != orSuccess) {
    end_turn(stream);
  }
  return error;
}
// [/dev-begin-turn]

Result<StreamRef> find_created_stream(
    Machine* machine, orStream_t handle, bool destroyed_too) {
  Result<StreamRef> found = machine->streams.find(handle);
  if (found && found->destroyed && !destroyed_too) {
    found = machine->streams.report_stale(handle);
  }
  return found;
}

orError_t report_inside(const char* call) {
  return fail(
      orErrorNotPermitted,
      "%s was called from inside %s, which the device runs; work that it "
      "launched or waited for could not begin",
      call,
      this_thread.inside);
}

std::vector<StreamRef> streams_of(Device* device) {
  std::vector<StreamRef> found{StreamRef(StreamRef(), &device->default_stream)};
  device->machine->streams.each([&](const StreamRef& stream) {
    if (stream->device == device) {
      found.push_back(stream);
    }
  });
  return found;
}

// All are marked before the first is waited for.
void wait_for_device(Device* device) {
  std::vector<MomentRef> moments;
  for (const StreamRef& stream : streams_of(device)) {
    if (!is_idle(*stream) && !is_capturing(*stream)) {
      moments.push_back(mark(*stream));
    }
  }
  for (const MomentRef& moment : moments) {
    moment->wait();
  }
}

}  // namespace emulator

using namespace emulator;

orError_t orDeviceGetDefaultStream(orStream_t* stream, int device) {
  if (stream == nullptr) {
    return fail(
        orErrorInvalidValue, "orDeviceGetDefaultStream: stream is NULL");
  }
  const Result<Device*> found = find_device(get_machine(), device);
  if (found) {
    *stream = &found->default_stream;
  }
  return found.error();
}

orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least == nullptr || greatest == nullptr) {
    return fail(
        orErrorInvalidValue,
        "orDeviceGetStreamPriorityRange: least or greatest is NULL");
  }
  const Result<Device*> device = current_device(get_machine());
  if (device) {
    *least = kLeastPriority;
    *greatest = kGreatestPriority;
  }
  return device.error();
}

// A stream costs no thread until work is queued for it.
orError_t orStreamCreateWithPriority(orStream_t* stream, int priority) {
  if (stream == nullptr) {
    return fail(
        orErrorInvalidValue, "orStreamCreateWithPriority: stream is NULL");
  }
  const Result<Device*> device = current_device(use_machine());
  if (!device) {
    return device.error();
  }
  return guarded("orStreamCreateWithPriority", [&] {
    Handles<orStream>& streams = device->machine->streams;
    *stream = streams.add([&](orStream* created, orStream_t handle) {
      static std::atomic<uint64_t> last{0};
      created->device = device.value();
      created->handle = handle;
      created->number = ++last;
      created->priority =
          std::clamp(priority, kGreatestPriority, kLeastPriority);
    });
    return orSuccess;
  });
}

// What is pending is still done, so the worker or the last turn removes it.
void emulator::forget_if_done(const orStream& stream) {
  if (stream.destroyed && is_idle(stream)) {
    stream.device->machine->streams.remove(stream.handle);
  }
}

orError_t orStreamDestroy(orStream_t stream) {
  const Result<StreamRef> found = find_stream(get_machine(), stream);
  if (!found) {
    return found.error();
  }
  if (found->number == 0) {
    return fail(
        orErrorInvalidResourceHandle,
        "orStreamDestroy: a default stream cannot be destroyed");
  }
  if (holds(*found) || is_capturing(*found)) {
    return fail(
        orErrorNotPermitted,
        "orStreamDestroy: this thread holds the stream's turn, or the stream "
        "is being captured; end it first");
  }
  {
    const std::lock_guard lock(found->mutex);
    found->destroyed = true;
    found->changed.notify_all();
  }
  forget_if_done(*found);
  return orSuccess;
}

orError_t orStreamGetDevice(orStream_t stream, int* device) {
  if (device == nullptr) {
    return fail(orErrorInvalidValue, "orStreamGetDevice: device is NULL");
  }
  const Result<StreamRef> found = find_stream(get_machine(), stream);
  if (found) {
    *device = found->device->index;
  }
  return found.error();
}

orError_t orStreamGetPriority(orStream_t stream, int* priority) {
  if (priority == nullptr) {
    return fail(orErrorInvalidValue, "orStreamGetPriority: priority is NULL");
  }
  const Result<StreamRef> found = find_stream(get_machine(), stream);
  if (found) {
    *priority = found->priority;
  }
  return found.error();
}

// A turn of this thread's own is not work that it could wait for.
orError_t orStreamQuery(orStream_t stream) {
  const Result<StreamRef> found = find_stream(get_machine(), stream);
  if (!found) {
    return found.error();
  }
  if (const orError_t error = check_device(*found->device)) {
    return error;
  }
  if (const orError_t error = check_not_captured(*found, "orStreamQuery")) {
    return error;
  }
  const uint64_t own = holds(*found) ? kBusy | 1 : 0;
  return (found->state.load() & ~kCapturing) == own ? orSuccess
                                                    : orErrorNotReady;
}

orError_t orStreamSynchronize(orStream_t stream) {
  const auto synchronize = [](const StreamRef& place) {
    if (const orError_t error =
            check_not_captured(*place, "orStreamSynchronize")) {
      return error;
    }
    Label label{orTraceWait, "orStreamSynchronize"};
    const Announced announced(*place, &label);
    if (!is_idle(*place)) {
      mark(*place)->wait();
    }
    return check_device(*place->device);
  };
  return with_stream("orStreamSynchronize", get_machine(), stream, synchronize);
}

orError_t orStreamBeginTurn(orStream_t stream, const char* name) {
  if (name == nullptr) {
    return fail(orErrorInvalidValue, "orStreamBeginTurn: name is NULL");
  }
  const auto begin = [&](const StreamRef& place) {
    Label label{orTraceTurn, name};
    announce(*place, &label);
    std::unique_ptr<TracedTurn> traced;
    if (label.work != 0) [[unlikely]] {
      traced.reset(new TracedTurn{label});
    }
    const orError_t error = begin_turn(*place, name);
    if (traced != nullptr && error == orSuccess) {
      write_trace(orTraceStart, *place, label);
      traced->depth = place->depth;
      traced->outer = std::move(place->traced);
      place->traced = std::move(traced);
    }
    return error;
  };
  return with_stream("orStreamBeginTurn", use_machine(), stream, begin);
}

// Also of a stream that was destroyed or a device that failed meanwhile.
orError_t orStreamEndTurn(orStream_t stream) {
  const Result<StreamRef> found = find_stream(get_machine(), stream, true);
  if (!found) {
    return found.error();
  }
  if (!holds(*found)) {
    return fail(
        orErrorNotPermitted,
        "orStreamEndTurn: this thread does not hold the stream's turn");
  }
  if (found->traced != nullptr && found->traced->depth == found->depth) {
    write_trace(orTraceEnd, *found, found->traced->label);
    found->traced = std::move(found->traced->outer);
  }
  end_turn(*found);
  forget_if_done(*found);
  return orSuccess;
}

int orStreamRunsInline(orStream_t stream) {
  const Result<StreamRef> found = find_stream(get_machine(), stream);
  if (!found || this_thread.inside != nullptr ||
      found->device->failure.sentence.load() != nullptr) {
    return 0;
  }
  return holds(*found) || (prefers_caller(*found) && is_idle(*found));
}

int orThreadHasTurn(void) {
  const Result<Machine*> machine = get_machine();
  const int devices = machine ? machine->config.device_count : 0;
  for (int index = 0; index < devices; ++index) {
    for (const auto& stream : streams_of(&machine->devices[index])) {
      if (holds(*stream)) {
        return 1;
      }
    }
  }
  return 0;
}
