#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/ops/_to_copy.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include "csrc/aten/core/copy_elements.h"
#include "csrc/aten/core/kernels.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/wait.h"

// Every copy with an end on the device. PyTorch's copy_, to() and clone() all
// arrive here.

namespace openreg {

// [copy-engine] The device's copy engine moves bytes as they are.
// The host waits for a copy that has an end there, unless the caller says
// otherwise and that end is pinned memory.
void copy_bytes(
    const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const auto device = device_of_copy(src, dst);
  const auto stream = current_stream(device);
  OPENREG_CHECK_WAIT(orMemcpyAsync(
      dst.mutable_data_ptr(),
      src.const_data_ptr(),
      src.nbytes(),
      orMemcpyDefault,
      stream));
  const auto& host = dst.is_privateuseone() ? src : dst;
  if (host.is_privateuseone()) {
    note_use(device, src.storage());
    note_use(device, dst.storage());
  } else if (!non_blocking) {
    OPENREG_CHECK_WAIT(orStreamSynchronize(stream));
  } else if (is_pinned(host.const_data_ptr())) {
    // It must not be handed out again before.
    const auto& data = host.storage().data_ptr();
    host_allocator()->record_event(
        data.get(), data.get_context(), get_stream(device));
    note_use(device, src.storage());
    note_use(device, dst.storage());
  }
}
// [/copy-engine]

namespace {

// [copy-from] A copy on one device, between two, or from and to the host.
at::Tensor copy_from(
    const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  // Of a shape that does not fit, even no element is copied: it is refused.
  if (self.is_same(dst) ||
      (dst.numel() == 0 && at::is_expandable_to(self.sizes(), dst.sizes()))) {
    return dst;
  }
  const auto& other = dst.is_privateuseone() ? self : dst;
  TORCH_CHECK_NOT_IMPLEMENTED(
      other.is_cpu() || other.is_privateuseone(),
      "openreg: there is no copy from ",
      self.device(),
      " to ",
      dst.device(),
      "; copy to the CPU first, and from there.");
  // On two aliases the kernel could not see what they share.
  at::assert_no_internal_overlap(dst);
  at::assert_no_partial_overlap(dst, self);
  const bool one_side = self.device().type() == dst.device().type();
  if ((!one_side || self.device() == dst.device()) && same_bytes(self, dst)) {
    copy_bytes(self, dst, non_blocking);
  } else {
    copy_elements(self, dst, non_blocking);
  }
  return dst;
}
// [/copy-from]

// The fallback's way back. The CPU's kernel has resized its copy, and warned
// where it must: the device's tensor follows without a word.
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) {
    dst.resize_(self.sizes());
    if (self.is_non_overlapping_and_dense()) {
      dst.unsafeGetTensorImpl()->set_sizes_and_strides(
          self.sizes(), self.strides());
    }
  }
  return copy_from(self, dst, /*non_blocking=*/false);
}

// [copy-lazy] A lazy copy, which is made at the first write to either tensor.
// PyTorch would make it on the current device, which may be another.
at::Tensor lazy_clone(const at::Tensor& self) {
  auto clone = at::native::_lazy_clone(self);
  for (const auto& tensor : {self, clone}) {
    auto* const impl = tensor.storage().unsafeGetStorageImpl();
    if (impl->has_materializer()) {
      impl->clear_materializer();
      impl->set_materializer([](c10::StorageImpl* storage) {
        const c10::DeviceGuard guard(storage->device());
        before_parting(storage->device().index());
        c10::impl::cow::materialize_cow(storage);
      });
    }
  }
  return clone;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_lazy_clone", &lazy_clone);
}
// [/copy-lazy]

}  // namespace

void register_copies(torch::Library& library) {
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
}

// [copy-math-bits] A copy handles conjugate and negative bits itself.
// Without this, clone() on such a view recurses until the stack overflows:
// PyTorch would resolve the bit first, by copying.
static void let_copies_pass(torch::Library& library) {
  using torch::CppFunction;
  library.impl("_copy_from", CppFunction::makeFallthrough());
  library.impl("_copy_from_and_resize", CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  let_copies_pass(library);
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  let_copies_pass(library);
}
// [/copy-math-bits]

}  // namespace openreg
