#pragma once

#include <c10/core/Stream.h>

#include "csrc/runtime/device.h"

// Streams as PyTorch names them (a number for each device) and as the device
// does (a handle). Number 0 is the default stream.

namespace openreg {

// The handle of the stream on which this thread launches work for `device`,
// which must be in range.
OPENREG_EXPORT orStream_t current_stream(c10::DeviceIndex device);

// The same as a c10::Stream; -1 means the current device.
OPENREG_EXPORT c10::Stream get_stream(c10::DeviceIndex device);

// Makes `stream` this thread's current stream of its device and returns the
// one that was. Raises when there is no such stream.
OPENREG_EXPORT c10::Stream exchange_stream(c10::Stream stream);

// The default stream of `device`; -1 means the current device.
OPENREG_EXPORT c10::Stream default_stream(c10::DeviceIndex device);

// A stream from the pool of `device` (-1: the current one). The pool hands out
// 32 streams of each priority in turn. Priorities below -1 count as -1; above
// 0 raises.
OPENREG_EXPORT c10::Stream pool_stream(c10::DeviceIndex device, int priority);

// The stream that `handle` belongs to, one that orStreamCreateWithPriority
// gave and that outlives its use here. Raises when it is of another device.
OPENREG_EXPORT c10::Stream external_stream(
    c10::DeviceIndex device, orStream_t handle);

// The device's handle for `stream`. Raises when there is no such stream.
OPENREG_EXPORT orStream_t handle_of(c10::Stream stream);

// -1 for a stream of high priority, else 0.
OPENREG_EXPORT int stream_priority(c10::Stream stream);

// Waits for all work launched on `stream` so far.
OPENREG_EXPORT void synchronize_stream(c10::Stream stream);

}  // namespace openreg
