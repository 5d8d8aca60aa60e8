#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "csrc/runtime/device.h"

// Host memory that copies need not wait for.

namespace openreg {

// Pinned memory: host memory that the device reads and writes directly.
OPENREG_EXPORT at::HostAllocator* host_allocator();

// Whether `address` lies anywhere in a block of pinned memory.
OPENREG_EXPORT bool is_pinned(const void* address);

// Raises c10::ValueError when PYTORCH_ALLOC_CONF, of which device memory reads
// its part, has a number that is none.
void check_allocator_options();

}  // namespace openreg
