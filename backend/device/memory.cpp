#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>

#include "device/device.h"
#include "device/memory.h"

// Blocks of device memory, and of pinned host memory.

namespace emulator {

namespace {

// Blocks are cut from the smallest gap that holds them.
// The answer is 0 when no gap does.
uintptr_t take(Device* device, size_t bytes) {
  auto& gaps = device->gaps;
  auto best = gaps.end();
  for (auto gap = gaps.begin(); gap != gaps.end(); ++gap) {
    if (gap->second >= bytes &&
        (best == gaps.end() || gap->second < best->second)) {
      best = gap;
    }
  }
  if (best == gaps.end()) {
    return 0;
  }
  const auto [base, size] = *best;
  gaps.erase(best);
  if (size > bytes) {
    gaps.emplace(base + bytes, size - bytes);
  }
  device->free_bytes -= bytes;
  return base;
}

// A freed block joins the gaps on both sides of it.
void give_back(Device* device, uintptr_t base, size_t bytes) {
  auto& gaps = device->gaps;
  device->free_bytes += bytes;
  const auto after = gaps.find(base + bytes);
  if (after != gaps.end()) {
    bytes += after->second;
    gaps.erase(after);
  }
  const auto place = gaps.lower_bound(base);
  if (place != gaps.begin()) {
    const auto before = std::prev(place);
    if (before->first + before->second == base) {
      before->second += bytes;
      return;
    }
  }
  gaps.emplace(base, bytes);
}

// A record for a new block: an old one, or one more.
Record* unused_record(Device* device) {
  if (!device->spare.empty()) {
    Record* const record = device->spare.back();
    device->spare.pop_back();
    return record;
  }
  Record* const record = new Record;
  record->next = device->records;
  device->records = record;
  return record;
}

// A hole in the file reads as zeros and costs nothing.
orError_t release_pages(const Device* device, size_t start, size_t bytes) {
  constexpr int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (fallocate(device->memory, mode, start, bytes) == 0) {
    return orSuccess;
  }
  return fail(
      orErrorMemoryAllocation,
      "cannot give %zu bytes of device %d back to the system: %s",
      bytes,
      device->index,
      std::strerror(errno));
}

Block find_pinned(Machine* machine, uintptr_t place) {
  const std::shared_lock lock(machine->pinned_mutex);
  const auto entry = machine->pinned.lower_bound(place);
  if (entry == machine->pinned.end() ||
      place - entry->first >= entry->second.size) {
    return kNoBlock;
  }
  return entry->second;
}

}  // namespace

// What is freed must not be in use.
orError_t settle_device(Device* device, const char* call) {
  if (const orError_t error = check_outside(call)) {
    return error;
  }
  return guarded(call, [&] {
    wait_for_device(device);
    return orSuccess;
  });
}

size_t round_to_page(const Device* device, size_t bytes) {
  const size_t page = device->machine->config.page;
  return (bytes + page - 1) / page * page;
}

// A block is an entry in two lists: the device's and the fault handler's.
Result<uintptr_t> add_block(Device* device, size_t size) {
  // Compared first, so that rounding up cannot overflow.
  const size_t capacity = device->machine->config.capacity;
  const uintptr_t base =
      size <= capacity ? take(device, round_to_page(device, size)) : 0;
  if (base == 0) {
    return fail(
        orErrorMemoryAllocation,
        "device %d has no gap of %zu bytes; %zu of its %zu bytes are free",
        device->index,
        size,
        device->free_bytes,
        capacity);
  }
  Record* const record = unused_record(device);
  record->size = size;
  record->base = base;
  device->live.emplace(base, record);
  return base;
}

void remove_block(Device* device, uintptr_t base) {
  const auto block = device->live.find(base);
  Record* const record = block->second;
  give_back(device, base, round_to_page(device, record->size));
  record->base = 0;
  device->spare.push_back(record);
  device->live.erase(block);
}

// [dev-find-block] Any address inside a block finds it; look-ups share a lock.
Block find_block(Machine* machine, const void* address) {
  // Before the first use there is no block, and no lock may be held: a child
  // forked then would wait for it forever.
  if (!machine->open) {
    return kNoBlock;
  }
  const uintptr_t place = to_integer(address);
  if (!in_device_range(address)) {
    return find_pinned(machine, place);
  }
  const Device* const device = owner_of(machine, address);
  const std::shared_lock lock(device->mutex);
  const auto entry = device->live.lower_bound(place);
  if (entry == device->live.end() ||
      place - entry->first >= entry->second->size) {
    return kNoBlock;
  }
  const auto [base, record] = *entry;
  return {orMemoryTypeDevice, device->index, to_pointer(base), record->size};
}
// [/dev-find-block]

}  // namespace emulator

using namespace emulator;

// [dev-or-malloc] Each device has its own lock, so none waits for another.
orError_t orMalloc(void** ptr, size_t size) {
  if (ptr == nullptr) {
    return fail(orErrorInvalidValue, "orMalloc: ptr is NULL");
  }
  const Result<Device*> device = current_device(use_machine());
  if (!device) {
    return device.error();
  }
  if (size == 0) {
    *ptr = nullptr;
    return orSuccess;
  }
  const std::unique_lock lock(device->mutex);
  const Result<uintptr_t> base = add_block(device.value(), size);
  if (!base) {
    return base.error();
  }
  *ptr = to_pointer(base.value());
  return orSuccess;
}
// [/dev-or-malloc]

// [dev-or-free] Only the start of a live block can be freed, and only once.
// Work that may still use it is waited for first, failed device or not.
orError_t orFree(void* ptr) {
  if (ptr == nullptr || is_forked()) {
    return orSuccess;  // what a parent allocated is the parent's to free
  }
  const Result<Machine*> machine = get_machine();
  if (!machine) {
    return machine.error();
  }
  // Rules out all that is in no block, host memory too.
  if (find_block(machine.value(), ptr).type != orMemoryTypeDevice) {
    return fail(
        orErrorInvalidDevicePointer,
        "orFree: %p is in no live block of device memory; was it freed?",
        ptr);
  }
  Device* const device = owner_of(machine.value(), ptr);
  if (const orError_t error = settle_device(device, "orFree")) {
    return error;
  }
  const std::unique_lock lock(device->mutex);
  const auto block = device->live.find(to_integer(ptr));
  const bool imported = device->imports.contains(to_integer(ptr));
  if (block == device->live.end() || imported) {
    return fail(
        orErrorInvalidDevicePointer,
        imported ? "orFree: %p is another process's; use orIpcCloseMemHandle"
                 : "orFree: %p is not the start of a block from orMalloc",
        ptr);
  }
  const auto [base, record] = *block;
  const size_t bytes = round_to_page(device, record->size);
  const size_t start = base - device->base;
  if (const orError_t error = release_pages(device, start, bytes)) {
    return error;
  }
  remove_block(device, base);
  return orSuccess;
}
// [/dev-or-free]

// Pinned memory is the host's own, and known to the device.
orError_t orMallocHost(void** ptr, size_t size) {
  if (ptr == nullptr) {
    return fail(orErrorInvalidValue, "orMallocHost: ptr is NULL");
  }
  const Result<Device*> device = current_device(use_machine());
  if (!device) {
    return device.error();
  }
  if (size == 0) {
    *ptr = nullptr;
    return orSuccess;
  }
  constexpr int protection = PROT_READ | PROT_WRITE;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  void* const base = mmap(nullptr, size, protection, flags, -1, 0);
  if (base == MAP_FAILED) {
    return fail(
        orErrorMemoryAllocation,
        "cannot map %zu bytes of host memory: %s",
        size,
        std::strerror(errno));
  }
  const std::unique_lock lock(device->machine->pinned_mutex);
  device->machine->pinned[to_integer(base)] = {
      orMemoryTypeHost, device->index, base, size};
  *ptr = base;
  return orSuccess;
}

orError_t orFreeHost(void* ptr) {
  if (ptr == nullptr || is_forked()) {
    return orSuccess;
  }
  const Result<Machine*> machine = get_machine();
  if (!machine) {
    return machine.error();
  }
  // Any device may use pinned memory. As in find_block, no lock before the
  // first use.
  if (machine->open) {
    for (Device& device : machine->devices) {
      if (const orError_t error = settle_device(&device, "orFreeHost")) {
        return error;
      }
    }
    const std::unique_lock lock(machine->pinned_mutex);
    const auto block = machine->pinned.find(to_integer(ptr));
    if (block != machine->pinned.end()) {
      if (munmap(ptr, block->second.size) != 0) {
        return fail(
            orErrorMemoryAllocation, "munmap: %s", std::strerror(errno));
      }
      machine->pinned.erase(block);
      return orSuccess;
    }
  }
  return fail(
      orErrorInvalidValue,
      "orFreeHost: %p is not a pointer that orMallocHost gave, or was freed",
      ptr);
}

// What can be had in whole pages.
orError_t orMemGetInfo(size_t* free, size_t* total) {
  if (free == nullptr || total == nullptr) {
    return fail(orErrorInvalidValue, "orMemGetInfo: free or total is NULL");
  }
  const Result<Device*> device = current_device(use_machine());
  if (!device) {
    return device.error();
  }
  const std::shared_lock lock(device->mutex);
  *free = device->free_bytes;
  *total = device->machine->config.capacity;
  return orSuccess;
}

// What an address says about itself.
orError_t orPointerGetAttributes(
    orPointerAttributes* attributes, const void* ptr) {
  if (attributes == nullptr) {
    return fail(
        orErrorInvalidValue, "orPointerGetAttributes: attributes is NULL");
  }
  const Result<Machine*> machine = get_machine();
  if (!machine) {
    return machine.error();
  }
  const Block block = find_block(machine.value(), ptr);
  if (block.base == nullptr && in_device_range(ptr)) {
    return fail(
        orErrorInvalidDevicePointer,
        "%p is in the range of device memory, but in no live block",
        ptr);
  }
  *attributes = block;
  return orSuccess;
}
