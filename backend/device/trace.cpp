#include <time.h>
#include <unistd.h>

#include "device/device.h"
#include "device/trace.h"

// Records of what devices do, for whoever asks.

int orTraceSubscribers = 0;

namespace emulator {

static std::atomic<uint64_t> last_work{0};

uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(time.tv_nsec);
}

// [dev-write-trace] A subscriber cannot leave while it is being called.
// Nor can it launch or wait: the work that it is told of would block it.
void write_trace(
    orTracePhase phase, const orStream& stream, const Label& label) {
  Machine* const machine = ready_machine;
  const char* const outside =
      std::exchange(this_thread.inside, "a function that listens to traces");
  {
    const std::shared_lock lock(machine->tracing_mutex);
    const orTraceRecord record{
        phase,
        label.kind,
        label.name,
        stream.device->index,
        label.thread,
        stream.number,
        label.bytes,
        label.work,
        now()};
    for (const orSubscriber& subscriber : machine->subscribers) {
      if (label.work > subscriber.since) {
        subscriber.fn(&record, subscriber.user);
      }
    }
  }
  this_thread.inside = outside;
}
// [/dev-write-trace]

void announce_traced(const orStream& stream, Label* label) {
  if (this_thread.system_number == 0) {
    this_thread.system_number = gettid();
  }
  label->work = ++last_work;
  label->thread = this_thread.system_number;
  write_trace(orTraceLaunch, stream, *label);
}

static void count_subscribers(const Machine& machine) {
  std::atomic_ref(orTraceSubscribers)
      .store(static_cast<int>(machine.subscribers.size()));
}

}  // namespace emulator

using namespace emulator;

orError_t orTraceSubscribe(
    orSubscriber_t* subscriber, orTraceFn fn, void* user) {
  const Result<Machine*> machine = enter("orTraceSubscribe");
  if (!machine) {
    return machine.error();
  }
  if (subscriber == nullptr || fn == nullptr) {
    return fail(
        orErrorInvalidValue, "orTraceSubscribe: subscriber or fn is NULL");
  }
  return guarded("orTraceSubscribe", [&] {
    static uintptr_t last = 0x5B5C000000000000;
    const std::unique_lock lock(machine->tracing_mutex);
    *subscriber = reinterpret_cast<orSubscriber_t>(last += 16);
    machine->subscribers.push_back({*subscriber, fn, user, last_work});
    count_subscribers(*machine);
    return orSuccess;
  });
}

orError_t orTraceUnsubscribe(orSubscriber_t subscriber) {
  const Result<Machine*> machine = enter("orTraceUnsubscribe");
  if (!machine) {
    return machine.error();
  }
  const std::unique_lock lock(machine->tracing_mutex);
  if (std::erase_if(machine->subscribers, [&](const orSubscriber& other) {
        return other.handle == subscriber;
      }) == 0) {
    return fail(
        orErrorInvalidResourceHandle,
        "%p is not a subscriber, or has unsubscribed",
        static_cast<void*>(subscriber));
  }
  count_subscribers(*machine);
  return orSuccess;
}
