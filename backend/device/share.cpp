#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "device/device.h"
#include "device/share.h"

// Blocks that processes share. A device's memory is a file, so a block is a
// part of one, and another process maps that part where its kernels look.

namespace emulator {

// [dev-map-pages] Maps pages of a file where kernels find a device's address.
// Whatever was mapped there before is replaced in one step.
bool map_pages(uintptr_t base, size_t bytes, int fd, size_t offset) {
  const uintptr_t place = base + orReservedAddresses.kernel_offset;
  constexpr int protection = PROT_READ | PROT_WRITE;
  constexpr int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  void* const mapped =
      mmap(to_pointer(place), bytes, protection, flags, fd, offset);
  return mapped != MAP_FAILED && keep_private(place, bytes);
}

// A forked child loses these addresses, and a core dump leaves them out.
bool keep_private(uintptr_t start, size_t bytes) {
  return madvise(to_pointer(start), bytes, MADV_DONTFORK) == 0 &&
         madvise(to_pointer(start), bytes, MADV_DONTDUMP) == 0;
}
// [/dev-map-pages]

namespace {

orError_t map_own_pages(const Device* device, uintptr_t base, size_t size) {
  const size_t bytes = round_to_page(device, size);
  const size_t offset = base - device->base;
  if (map_pages(base, bytes, device->memory, offset)) {
    return orSuccess;
  }
  return fail(
      orErrorMemoryAllocation,
      "cannot map the memory of device %d back: %s",
      device->index,
      std::strerror(errno));
}

// Checked here, because a range past the file's end would fault in a kernel.
orError_t check_handle(
    const Device* device, const orIpcMemHandle& handle, struct stat* file) {
  if (fstat(handle.fd, file) != 0 || !S_ISREG(file->st_mode)) {
    return fail(
        orErrorInvalidResourceHandle,
        "orIpcOpenMemHandle: descriptor %d is not that of a device's memory",
        handle.fd);
  }
  const size_t length = file->st_size;
  if (handle.offset % device->machine->config.page != 0 || handle.size == 0 ||
      handle.offset > length || handle.size > length - handle.offset) {
    return fail(
        orErrorInvalidValue,
        "orIpcOpenMemHandle: %zu bytes at %zu are no block of a memory of %zu",
        handle.size,
        handle.offset,
        length);
  }
  return orSuccess;
}

// The same pages are not mapped twice.
uintptr_t reopen(
    Device* device, const orIpcMemHandle& handle, const struct stat& file) {
  for (auto& [base, import] : device->imports) {
    if (import.file_system == file.st_dev && import.file == file.st_ino &&
        import.offset == handle.offset && import.size == handle.size) {
      ++import.uses;
      return base;
    }
  }
  return 0;
}

// [dev-import] Maps the shared pages at addresses of this process.
Result<uintptr_t> import_block(
    Device* device, const orIpcMemHandle& handle, const struct stat& file) {
  const Result<uintptr_t> added = add_block(device, handle.size);
  if (!added) {
    return added;
  }
  const uintptr_t base = added.value();
  const size_t bytes = round_to_page(device, handle.size);
  if (!map_pages(base, bytes, handle.fd, handle.offset)) {
    const char* const reason = std::strerror(errno);
    map_own_pages(device, base, handle.size);
    remove_block(device, base);
    return fail(
        orErrorMemoryAllocation,
        "cannot map %zu bytes of another process's device: %s",
        handle.size,
        reason);
  }
  device->imports[base] = {
      file.st_dev, file.st_ino, handle.offset, handle.size, 1};
  return base;
}
// [/dev-import]

}  // namespace

}  // namespace emulator

using namespace emulator;

// Where the block lies in the file.
orError_t orIpcGetMemHandle(orIpcMemHandle* handle, void* ptr) {
  if (handle == nullptr) {
    return fail(orErrorInvalidValue, "orIpcGetMemHandle: handle is NULL");
  }
  const Result<Machine*> machine = get_machine();
  if (!machine) {
    return machine.error();
  }
  const Block block = find_block(machine.value(), ptr);
  if (block.type != orMemoryTypeDevice || block.base != ptr) {
    return fail(
        orErrorInvalidDevicePointer,
        "orIpcGetMemHandle: %p is not the start of a live block of a device",
        ptr);
  }
  const Device* const device = owner_of(machine.value(), ptr);
  const std::shared_lock lock(device->mutex);
  const uintptr_t base = to_integer(ptr);
  if (device->imports.contains(base)) {
    return fail(
        orErrorInvalidValue,
        "orIpcGetMemHandle: %p came from another process, which alone can "
        "share it",
        ptr);
  }
  *handle = {device->memory, base - device->base, block.size};
  return orSuccess;
}

// [dev-ipc-open] A block that is open already is counted, not mapped again.
orError_t orIpcOpenMemHandle(void** ptr, const orIpcMemHandle* handle) {
  if (ptr == nullptr || handle == nullptr) {
    return fail(
        orErrorInvalidValue, "orIpcOpenMemHandle: ptr or handle is NULL");
  }
  const Result<Device*> device = current_device(use_machine());
  if (!device) {
    return device.error();
  }
  struct stat file{};
  if (const orError_t error = check_handle(device.value(), *handle, &file)) {
    return error;
  }
  const std::unique_lock lock(device->mutex);
  const uintptr_t open = reopen(device.value(), *handle, file);
  const Result<uintptr_t> base =
      open != 0 ? open : import_block(device.value(), *handle, file);
  if (!base) {
    return base.error();
  }
  *ptr = to_pointer(base.value());
  return orSuccess;
}
// [/dev-ipc-open]

// The device's own pages return to where they were. Another process may use
// the block again from then on, so work that uses it is waited for.
orError_t orIpcCloseMemHandle(void* ptr) {
  if (is_forked()) {
    return orSuccess;  // what a parent opened is the parent's to close
  }
  const Result<Machine*> machine = get_machine();
  if (!machine) {
    return machine.error();
  }
  if (find_block(machine.value(), ptr).type == orMemoryTypeDevice) {
    Device* const device = owner_of(machine.value(), ptr);
    if (const orError_t error = settle_device(device, "orIpcCloseMemHandle")) {
      return error;
    }
    const std::unique_lock lock(device->mutex);
    const auto entry = device->imports.find(to_integer(ptr));
    if (entry != device->imports.end()) {
      auto& [base, import] = *entry;
      if (import.uses > 1) {
        --import.uses;
        return orSuccess;
      }
      if (const orError_t error = map_own_pages(device, base, import.size)) {
        return error;
      }
      remove_block(device, base);
      device->imports.erase(entry);
      return orSuccess;
    }
  }
  return fail(
      orErrorInvalidDevicePointer,
      "orIpcCloseMemHandle: %p is not what orIpcOpenMemHandle gave, or closed",
      ptr);
}
