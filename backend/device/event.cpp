#include <algorithm>
#include <chrono>
#include <thread>

#include "device/event.h"
#include "device/launch.h"
#include "device/worker.h"

// Events: names for moments, and waits for them.

namespace emulator {

// A moment comes once, and then stays.
void Moment::complete() {
  time_ = now();
  {
    const std::lock_guard lock(mutex_);
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void Moment::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_done(); });
}

bool Moment::wait_a_little() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(
      lock, std::chrono::milliseconds(5), [this] { return is_done(); });
}

bool should_wait(const Device& device) {
  return device.failure.sentence.load() == nullptr && !is_ending();
}

namespace {

Result<EventRef> find_event(Result<Machine*> machine, orEvent_t handle) {
  return machine ? machine->events.find(handle) : machine.error();
}

MomentRef moment_of(orEvent& event) {
  const std::lock_guard lock(event.mutex);
  return event.moment;
}

// [dev-waits] A wait is queued work that polls until it may end.
// A wait ends when it is over, and when the device has failed or the process
// ends: the host may never write the value, nor reach what it promised.
struct EventWait {
  MomentRef moment;
  const Device* device;

  orError_t operator()() const {
    while (!moment->wait_a_little() && should_wait(*device)) {
    }
    return orSuccess;
  }
};

struct ValueWait {
  const uint64_t* address;
  uint64_t value;
  const Device* device;

  orError_t operator()() const {
    std::chrono::microseconds pause(20);
    while (__atomic_load_n(address, __ATOMIC_ACQUIRE) < value &&
           should_wait(*device)) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(500));
    }
    return orSuccess;
  }
};
// [/dev-waits]

// A wait is never run by a caller who need not: `auto` would block it.
template <typename Wait>
orError_t launch_wait(const StreamRef& stream, const Wait& wait) {
  if (!join_turn(*stream)) {
    if (launch_mode.load(std::memory_order_relaxed) != Launch::kBlocking ||
        is_capturing(*stream)) {
      // Of the stream's own, so it is not traced.
      return queue(stream, pack({orTraceKernel, "wait"}, wait));
    }
    if (const orError_t error = begin_turn(*stream, nullptr)) {
      return error;
    }
  }
  wait();
  end_turn(*stream);
  return check_device(*stream->device);
}

}  // namespace

}  // namespace emulator

using namespace emulator;

orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event) {
  const auto wait = [&](const StreamRef& place) {
    const Result<EventRef> found = find_event(place->device->machine, event);
    if (!found) {
      return found.error();
    }
    const MomentRef moment = moment_of(*found);
    if (moment == nullptr) {
      return orSuccess;
    }
    if (moment->branch != nullptr) {
      return join_capture(place, *moment->branch);
    }
    const orError_t error =
        check_not_captured(*place, "an event that is recorded outside");
    return error != orSuccess || moment->is_done()
               ? error
               : launch_wait(place, EventWait{moment, place->device});
  };
  return with_stream("orStreamWaitEvent", use_machine(), stream, wait);
}

orError_t orStreamWaitValue64(
    orStream_t stream, const uint64_t* address, uint64_t value) {
  const auto wait = [&](const StreamRef& place) {
    if (address == nullptr || to_integer(address) % sizeof(*address) != 0 ||
        in_device_range(address)) {
      return fail(
          orErrorInvalidValue,
          "orStreamWaitValue64: %p is not an aligned address of host memory",
          static_cast<const void*>(address));
    }
    return launch_wait(place, ValueWait{address, value, place->device});
  };
  return with_stream("orStreamWaitValue64", use_machine(), stream, wait);
}

orError_t orEventCreate(orEvent_t* event, unsigned flags) {
  if (event == nullptr) {
    return fail(orErrorInvalidValue, "orEventCreate: event is NULL");
  }
  if ((flags & ~unsigned{orEventDisableTiming}) != 0) {
    return fail(
        orErrorInvalidValue,
        "orEventCreate: flags are %u; expected 0 or 2",
        flags);
  }
  const Result<Device*> device = current_device(use_machine());
  if (!device) {
    return device.error();
  }
  return guarded("orEventCreate", [&] {
    *event = device->machine->events.add([&](orEvent* created, orEvent_t) {
      created->device = device.value();
      created->flags = flags;
    });
    return orSuccess;
  });
}

orError_t orEventDestroy(orEvent_t event) {
  const Result<EventRef> found = find_event(get_machine(), event);
  if (found) {
    found->device->machine->events.remove(event);
  }
  return found.error();
}

// [dev-event-record] Recording an event again gives it a new mark.
// A wait that was launched before keeps a reference to the old one.
orError_t orEventRecord(orEvent_t event, orStream_t stream) {
  const auto record = [&](const StreamRef& place) {
    const Result<EventRef> found = find_event(place->device->machine, event);
    if (!found) {
      return found.error();
    }
    if (found->device != place->device) {
      return fail(
          orErrorInvalidResourceHandle,
          "orEventRecord: the event is of device %d, the stream of device %d",
          found->device->index,
          place->device->index);
    }
    MomentRef moment =
        is_capturing(*place) ? mark_captured(*place) : mark(*place);
    const std::lock_guard lock(found->mutex);
    found->moment.swap(moment);
    return orSuccess;
  };
  return with_stream("orEventRecord", use_machine(), stream, record);
}
// [/dev-event-record]

orError_t orEventQuery(orEvent_t event) {
  const Result<EventRef> found = find_event(get_machine(), event);
  if (!found) {
    return found.error();
  }
  if (const orError_t error = check_device(*found->device)) {
    return error;
  }
  const MomentRef moment = moment_of(*found);
  if (const orError_t error = check_not_captured(moment)) {
    return error;
  }
  return moment == nullptr || moment->is_done() ? orSuccess : orErrorNotReady;
}

orError_t orEventSynchronize(orEvent_t event) {
  const Result<EventRef> found = find_event(enter("orEventSynchronize"), event);
  if (!found) {
    return found.error();
  }
  Label label{orTraceWait, "orEventSynchronize"};
  const Announced announced(found->device->default_stream, &label);
  if (const MomentRef moment = moment_of(*found)) {
    if (const orError_t error = check_not_captured(moment)) {
      return error;
    }
    moment->wait();
  }
  return check_device(*found->device);
}

orError_t orEventElapsedTime(
    float* milliseconds, orEvent_t start, orEvent_t end) {
  if (milliseconds == nullptr) {
    return fail(
        orErrorInvalidValue, "orEventElapsedTime: milliseconds is NULL");
  }
  const Result<EventRef> from = find_event(get_machine(), start);
  const Result<EventRef> to = from ? find_event(get_machine(), end) : from;
  if (!to) {
    return to.error();
  }
  if (from->device != to->device) {
    return fail(
        orErrorInvalidResourceHandle,
        "orEventElapsedTime: the events are of devices %d and %d",
        from->device->index,
        to->device->index);
  }
  const MomentRef first = moment_of(*from);
  const MomentRef last = moment_of(*to);
  if (((from->flags | to->flags) & orEventDisableTiming) != 0 ||
      first == nullptr || last == nullptr) {
    return fail(
        orErrorInvalidResourceHandle,
        "orEventElapsedTime: both events must be recorded, and made without "
        "orEventDisableTiming");
  }
  if (const orError_t error = check_device(*from->device)) {
    return error;
  }
  if (const orError_t error = check_not_captured(first, last)) {
    return error;
  }
  if (!first->is_done() || !last->is_done()) {
    return orErrorNotReady;
  }
  const auto nanoseconds = static_cast<int64_t>(last->time() - first->time());
  *milliseconds = static_cast<float>(nanoseconds) * 1e-6f;
  return orSuccess;
}
