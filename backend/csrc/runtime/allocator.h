#pragma once

#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

#include "csrc/runtime/device.h"

// Memory of the device, from the pool that PyTorch's tensors take it from.

namespace openreg {

// The caching pool that PyTorch knows as the device's allocator.
OPENREG_EXPORT c10::DeviceAllocator* device_allocator();

// `bytes` of `device` from the pool, as a device address, for work of the
// current stream; NULL for 0 bytes.
// Raises c10::OutOfMemoryError when the device is full.
OPENREG_EXPORT void* device_allocate(c10::DeviceIndex device, size_t bytes);

// As device_allocate, for a thread in its turn. It cannot wait for the streams
// that hold back what could be released, so NULL says that the memory may be
// had after the turn.
OPENREG_EXPORT void* device_allocate_in_turn(
    c10::DeviceIndex device, size_t bytes);

// Gives a device address from device_allocate back. Never raises.
OPENREG_EXPORT void device_free(void* address) noexcept;

// device_allocate as an owning DataPtr whose context is the address itself.
OPENREG_EXPORT c10::DataPtr device_data_ptr(
    c10::DeviceIndex device, size_t bytes);

// The private pool of graphs that the memory at `address` is of, else 0.
uint64_t private_pool_of(const void* address);

// From the one to the other, what is free in a private pool stays there.
void keep_private_pool(c10::DeviceIndex device, uint64_t number);
void release_private_pool(c10::DeviceIndex device, uint64_t number);

// The part of the device's capacity that the pool may take, 1 at first.
// set_memory_fraction raises unless 0 <= fraction <= 1; what is taken already
// stays.
OPENREG_EXPORT double memory_fraction(c10::DeviceIndex device);
OPENREG_EXPORT void set_memory_fraction(
    c10::DeviceIndex device, double fraction);

// Every segment of `device` and its blocks, in the order of addresses.
OPENREG_EXPORT std::vector<c10::CachingDeviceAllocator::SegmentInfo>
memory_snapshot(c10::DeviceIndex device);

}  // namespace openreg
