#pragma once

#include <c10/core/Stream.h>

#include "csrc/runtime/device.h"

// Events as PyTorch's guard uses them: NULL until their first record.

namespace openreg {

// Records `*event` on `stream`; NULL is replaced by a new event first, which
// keeps times if `timing`. Raises when the event belongs to `device`, another
// one than the stream's (-1: to none yet).
OPENREG_EXPORT void record_event(
    orEvent_t* event, c10::Stream stream, c10::DeviceIndex device, bool timing);

// Later work of `stream` waits for the latest record of `event`; NULL orders
// nothing.
OPENREG_EXPORT void wait_for_event(orEvent_t event, c10::Stream stream);

// Waits on the host for the latest record; NULL has none.
OPENREG_EXPORT void synchronize_event(orEvent_t event);

// Milliseconds between two records, which must be done.
OPENREG_EXPORT double elapsed_time(orEvent_t start, orEvent_t end);

// What a query answered, as a bool. Raises for every other answer.
OPENREG_EXPORT bool is_done(orError_t answer, const char* query);

}  // namespace openreg
