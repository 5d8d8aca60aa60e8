#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "csrc/runtime/device.h"

// Host memory that copies need not wait for.

namespace openreg {

// Pinned memory: host memory that the device reads and writes directly.
OPENREG_EXPORT at::HostAllocator* host_allocator();

// Whether `address` lies anywhere in a block of pinned memory.
OPENREG_EXPORT bool is_pinned(const void* address);

}  // namespace openreg
