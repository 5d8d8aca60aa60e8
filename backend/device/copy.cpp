#include <cstring>

#include "device/state.h"

// Copies between host and devices, and filling. Everything that can be refused
// is refused before the first byte moves.

namespace openreg {

namespace {

// [dev-check-range] A range must end where its block ends, or before.
// Ordinary host memory is in no block: its bounds are the host's business.
orError_t check_range(
    Machine* machine, const char* role, const void* address, size_t count) {
  const Block block = find_block(machine, address);
  if (block.base == 0) {
    if (!in_device_range(machine, address)) {
      return orSuccess;
    }
    return fail(
        orErrorInvalidDevicePointer,
        "%s %p is in no live block of device memory; was it freed?",
        role,
        address);
  }
  const size_t rest = block.base + block.size - to_integer(address);
  if (count <= rest) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidValue,
      "%s %p: %zu bytes pass the end of its block; expected at most %zu",
      role,
      address,
      count,
      rest);
}
// [/dev-check-range]

// The kind of a copy must fit both pointers.
orError_t check_side(
    const Machine* machine,
    const char* role,
    const void* address,
    bool expect_device) {
  if (in_device_range(machine, address) == expect_device) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidMemcpyDirection,
      "%s %p is %s memory, but the kind expects %s memory",
      role,
      address,
      expect_device ? "host" : "device",
      expect_device ? "device" : "host");
}

orError_t check_owner(
    Machine* machine, const char* role, const void* address, int index) {
  if (in_device_range(machine, address) &&
      owner_of(machine, address)->index == index) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidDevicePointer,
      "%s %p is not memory of device %d",
      role,
      address,
      index);
}

// [dev-copy] The copy engine looks where a kernel would.
void* reach(const Machine* machine, const void* address) {
  const ptrdiff_t offset =
      in_device_range(machine, address) ? machine->space.kernel_offset : 0;
  return reinterpret_cast<void*>(to_integer(address) + offset);
}

// The ranges may overlap.
orError_t copy(Machine* machine, void* dst, const void* src, size_t count) {
  if (check_range(machine, "dst", dst, count) != orSuccess ||
      check_range(machine, "src", src, count) != orSuccess) {
    return orPeekAtLastError();
  }
  std::memmove(reach(machine, dst), reach(machine, src), count);
  return orSuccess;
}
// [/dev-copy]

}  // namespace

}  // namespace openreg

using namespace openreg;

// [dev-memcpy] In a kind's number, bit 0 puts dst on a device, bit 1 src.
orError_t orMemcpy(
    void* dst, const void* src, size_t count, orMemcpyKind kind) {
  const unsigned number = static_cast<unsigned>(kind);
  if (number > orMemcpyDefault) {
    return fail(
        orErrorInvalidMemcpyDirection,
        "orMemcpy: kind is %u; expected 0 to 4",
        number);
  }
  Machine* const machine = get_machine();
  if (machine == nullptr) {
    return orPeekAtLastError();
  }
  if (count == 0) {
    return orSuccess;
  }
  if (dst == nullptr || src == nullptr) {
    return fail(orErrorInvalidValue, "orMemcpy: dst or src is NULL");
  }
  if (kind != orMemcpyDefault &&
      (check_side(machine, "dst", dst, number & 1) != orSuccess ||
       check_side(machine, "src", src, number & 2) != orSuccess)) {
    return orPeekAtLastError();
  }
  return copy(machine, dst, src, count);
}
// [/dev-memcpy]

orError_t orMemcpyPeer(
    void* dst, int dst_device, const void* src, int src_device, size_t count) {
  Machine* const machine = get_machine();
  if (machine == nullptr || find_device(machine, dst_device) == nullptr ||
      find_device(machine, src_device) == nullptr) {
    return orPeekAtLastError();
  }
  if (count == 0) {
    return orSuccess;
  }
  if (dst == nullptr || src == nullptr) {
    return fail(orErrorInvalidValue, "orMemcpyPeer: dst or src is NULL");
  }
  if (check_owner(machine, "dst", dst, dst_device) != orSuccess ||
      check_owner(machine, "src", src, src_device) != orSuccess) {
    return orPeekAtLastError();
  }
  return copy(machine, dst, src, count);
}

orError_t orMemset(void* ptr, int value, size_t count) {
  Machine* const machine = get_machine();
  if (machine == nullptr) {
    return orPeekAtLastError();
  }
  if (count == 0) {
    return orSuccess;
  }
  if (ptr == nullptr) {
    return fail(orErrorInvalidValue, "orMemset: ptr is NULL");
  }
  if (!in_device_range(machine, ptr)) {
    return fail(
        orErrorInvalidDevicePointer,
        "orMemset: %p is not device memory; the host can set its own",
        ptr);
  }
  if (check_range(machine, "ptr", ptr, count) != orSuccess) {
    return orPeekAtLastError();
  }
  std::memset(reach(machine, ptr), value, count);
  return orSuccess;
}
