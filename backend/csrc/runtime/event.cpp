#include "csrc/runtime/event.h"

#include <c10/core/DeviceGuard.h>

#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

namespace openreg {

// [event-record] PyTorch makes an event before it knows the event's device.
void record_event(
    orEvent_t* event,
    c10::Stream stream,
    c10::DeviceIndex device,
    bool timing) {
  const orStream_t handle = handle_of(stream);
  TORCH_CHECK(
      device == -1 || device == stream.device_index(),
      "An event of device ",
      static_cast<int>(device),
      " cannot be recorded on a stream of device ",
      static_cast<int>(stream.device_index()),
      ". Use one event for each device.");
  if (*event == nullptr) {
    const c10::DeviceGuard guard(stream.device());
    OPENREG_CHECK(
        orEventCreate(event, timing ? orEventDefault : orEventDisableTiming));
  }
  OPENREG_CHECK(orEventRecord(*event, handle));
}
// [/event-record]

// [event-wait] Makes a stream, or the host, wait for an event.
void wait_for_event(orEvent_t event, c10::Stream stream) {
  const orStream_t handle = handle_of(stream);
  if (event != nullptr) {
    OPENREG_CHECK_WAIT(orStreamWaitEvent(handle, event));
  }
}

void synchronize_event(orEvent_t event) {
  if (event != nullptr) {
    OPENREG_CHECK_WAIT(orEventSynchronize(event));
  }
}
// [/event-wait]

double elapsed_time(orEvent_t start, orEvent_t end) {
  float milliseconds = 0;
  OPENREG_CHECK(orEventElapsedTime(&milliseconds, start, end));
  return milliseconds;
}

bool is_done(orError_t answer, const char* query) {
  if (answer != orSuccess && answer != orErrorNotReady) {
    raise_error(answer, query);
  }
  return answer == orSuccess;
}

}  // namespace openreg
