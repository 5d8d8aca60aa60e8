#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

#include "device/error.h"

// Blocks of memory, and what an address says.

namespace emulator {

struct Device;
struct Machine;

// [dev-record] A live block, as a signal handler can read it.
// Records form a list that only grows; a freed block leaves base 0 behind and
// its record serves a later block. So no reader ever needs a lock.
struct Record {
  std::atomic<uintptr_t> base{0};
  std::atomic<size_t> size{0};  // as requested, not rounded
  Record* next = nullptr;
};
// [/dev-record]

// What a look-up finds.
using Block = orPointerAttributes;
inline constexpr Block kNoBlock{orMemoryTypeUnregistered, -1, nullptr, 0};

// Blocks by where they start, the last one first: so lower_bound() finds the
// only one that an address can be in.
template <typename T>
using Blocks = std::map<uintptr_t, T, std::greater<>>;

// A live block at free addresses of `device`, whose mutex the caller holds.
// None when no gap is large enough.
Result<uintptr_t> add_block(Device* device, size_t size);

// The reverse; what the addresses lead to is the caller's business.
void remove_block(Device* device, uintptr_t base);

size_t round_to_page(const Device* device, size_t bytes);

// Waits for what may use memory that a call takes back; not permitted inside
// the device's own work.
orError_t settle_device(Device* device, const char* call);

// The block of device or pinned memory that `address` points into.
Block find_block(Machine* machine, const void* address);

inline uintptr_t to_integer(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

inline void* to_pointer(uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

// [dev-owner] The address alone tells which device it belongs to.
// Another thread may be reserving the ranges: what is written last, the size,
// is read first, and while that is 0 no address is a device's.
inline bool in_device_range(const void* address) {
  orAddressSpace& space = orReservedAddresses;
  const std::atomic_ref base(space.device_base), bytes(space.device_bytes);
  const size_t size = bytes.load(std::memory_order_acquire);
  return to_integer(address) - base.load(std::memory_order_relaxed) < size;
}

// Of an address in the device range.
template <typename M>
auto* owner_of(M* machine, const void* address) {
  const auto offset = to_integer(address) - orReservedAddresses.device_base;
  return &machine->devices[offset / machine->config.capacity];
}
// [/dev-owner]

}  // namespace emulator
