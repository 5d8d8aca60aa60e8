#include <time.h>

#include "device/state.h"

// Records of what devices do, for whoever asks.

namespace openreg {

std::atomic<bool> tracing{false};

namespace {

std::shared_mutex subscriber_mutex;
orTraceFn subscriber = nullptr;
void* subscriber_user = nullptr;

}  // namespace

uint64_t number_work() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(time.tv_nsec);
}

// The subscriber cannot leave while it is being called.
void write_trace(
    orTracePhase phase, const orStream& stream, Label label, uint64_t id) {
  const std::shared_lock lock(subscriber_mutex);
  if (subscriber == nullptr) {
    return;
  }
  const orTraceRecord record{
      phase,
      label.kind,
      label.name,
      stream.device->index,
      stream.number,
      label.bytes,
      id,
      now()};
  subscriber(&record, subscriber_user);
}

}  // namespace openreg

using namespace openreg;

orError_t orTraceSubscribe(orTraceFn fn, void* user) {
  if (get_machine() == nullptr) {
    return orPeekAtLastError();
  }
  const std::unique_lock lock(subscriber_mutex);
  subscriber = fn;
  subscriber_user = user;
  tracing = fn != nullptr;
  return orSuccess;
}
