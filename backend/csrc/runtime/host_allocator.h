#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "csrc/runtime/device.h"

namespace openreg {

// Pinned memory: host memory that the device reads and writes directly.
OPENREG_EXPORT at::HostAllocator* host_allocator();

// Whether `address` lies anywhere in a block of pinned memory.
bool is_pinned(const void* address);

}  // namespace openreg
