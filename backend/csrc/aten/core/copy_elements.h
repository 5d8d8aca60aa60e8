#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/runtime/stream.h"

// The two ways to copy, when one end or both are on a device: bytes as they
// are, and elements, which a kernel moves.

namespace openreg {

// The device of a copy: the source's, where both ends are on one.
inline c10::DeviceIndex device_of_copy(
    const at::Tensor& src, const at::Tensor& dst) {
  return (src.is_privateuseone() ? src : dst).device().index();
}

// Whether both are in one piece of memory each, with the same elements at the
// same places. PyTorch refuses to copy integers of 1 to 7 bits on one device.
inline bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  using enum c10::ScalarType;
  const bool tiny = a.scalar_type() >= UInt1 && a.scalar_type() <= Int7;
  if (tiny && a.device().type() == b.device().type()) {
    return false;
  }
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

// Copies the bytes of one to the other. With an end on the host it may return
// before the copy is made only if `non_blocking` says so.
void copy_bytes(
    const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

// Copies between any dtypes and strides, and broadcasts. The minimal build has
// a function of its own.
void copy_elements(
    const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

// Told of memory that queued work of `device` uses; graphs listen here.
OPENREG_EXPORT inline void (*note_use)(c10::DeviceIndex, const c10::Storage&) =
    [](c10::DeviceIndex, const c10::Storage&) {};

// Called before a lazy clone on `device` becomes a copy. Raises where that is
// not possible; graphs refuse it in a capture.
OPENREG_EXPORT inline void (*before_parting)(c10::DeviceIndex) =
    [](c10::DeviceIndex) {};

}  // namespace openreg
