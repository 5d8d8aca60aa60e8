#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <c10/core/Device.h>

#include "csrc/runtime/device.h"

// From an address to its device, and to the place where kernels find it.
// Addresses alone decide: a tensor made by from_blob carries no context that
// could tell. The device's ranges are constants of the process from its first
// use of a device on, which comes before any address of one.

namespace openreg {

// [address-device] An address says whether it is on a device, and on which.
inline bool is_device_address(const void* address) {
  orAddressSpace& space = orReservedAddresses;
  const std::atomic_ref base(space.device_base), bytes(space.device_bytes);
  // Another thread may be the first user: what it writes last is read first.
  const size_t size = bytes.load(std::memory_order_acquire);
  return reinterpret_cast<uintptr_t>(address) -
             base.load(std::memory_order_relaxed) <
         size;
}

// The device that owns a device address.
inline c10::DeviceIndex device_of(const void* address) {
  const auto offset =
      reinterpret_cast<uintptr_t>(address) - orReservedAddresses.device_base;
  const auto capacity = orReservedAddresses.device_capacity;
  // Mostly the first device's; a division costs as much as a locked exchange.
  return static_cast<c10::DeviceIndex>(
      C10_LIKELY(offset < capacity) ? 0 : offset / capacity);
}
// [/address-device]

// [address-kernel] Turns a device's address into one that a kernel can use.
// NULL, the address of an empty block, stays NULL.
template <typename T>
T* to_kernel(T* address) {
  if (address == nullptr) {
    return nullptr;
  }
  return reinterpret_cast<T*>(
      reinterpret_cast<uintptr_t>(address) + orReservedAddresses.kernel_offset);
}
// [/address-kernel]

// The inverse of to_kernel.
template <typename T>
T* to_device(T* address) {
  if (address == nullptr) {
    return nullptr;
  }
  return reinterpret_cast<T*>(
      reinterpret_cast<uintptr_t>(address) - orReservedAddresses.kernel_offset);
}

}  // namespace openreg
