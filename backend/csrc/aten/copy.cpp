#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Scalar.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include "csrc/aten/alias.h"
#include "csrc/aten/kernels.h"
#include "csrc/aten/structured.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/host_allocator.h"

// Every copy with an end on the device. PyTorch's copy_, to() and clone() all
// arrive here.

namespace openreg {
namespace {

// Of a copy with an end on the device: the source's, where both are.
c10::DeviceIndex device_index(const at::Tensor& src, const at::Tensor& dst) {
  return (src.is_privateuseone() ? src : dst).device().index();
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense();
}

// Pinned memory that a queued copy uses must not be handed out again before.
void keep_pinned(const at::Tensor& host, c10::DeviceIndex device) {
  const auto& data = host.storage().data_ptr();
  host_allocator()->record_event(
      data.get(), data.get_context(), get_stream(device));
}

// [copy-engine] The device's copy engine moves bytes as they are.
// It may return before the copy is made only if that is what the caller asked
// for, and only between the device and pinned memory.
void copy_bytes(
    const at::Tensor& src,
    const at::Tensor& dst,
    bool non_blocking,
    c10::DeviceIndex device) {
  const auto stream = current_stream(device);
  OPENREG_CHECK_WAIT(orMemcpyAsync(
      dst.mutable_data_ptr(),
      src.const_data_ptr(),
      src.nbytes(),
      orMemcpyDefault,
      stream));
  const auto& host = dst.is_privateuseone() ? src : dst;
  if (!non_blocking) {
    OPENREG_CHECK_WAIT(orStreamSynchronize(stream));
  } else if (is_pinned(host.const_data_ptr())) {
    keep_pinned(host, device);
  }
}
// [/copy-engine]

// [copy-elements] A copy that converts or moves strided elements is a kernel.
// It is ATen's copy kernel on aliases. Both sides are where a kernel may look:
// device memory through its alias, host memory as it is.
void copy_elements(const at::Tensor& src, const at::Tensor& dst) {
  dst.storage().mutable_data();  // parts it from its lazy clones
  // With one side on the host it is never queued: the host may move on. And
  // not every dtype converts to every other.
  const bool sure = src.device().type() == dst.device().type() &&
                    is_usual_or_bool(src) && is_usual_or_bool(dst) &&
                    at::is_expandable_to(src.sizes(), dst.sizes());
  const auto copy = [](const at::Tensor& to, const at::Tensor& from) {
    to.copy_(from);
  };
  run_or_queue(
      sure, device_index(src, dst), "aten::_copy_from", copy, dst, src);
}
// [/copy-elements]

// [copy-peers] Between two devices, a copy has its place in both their streams.
void copy_between_devices(const at::Tensor& src, const at::Tensor& dst) {
  const auto here = get_stream(src.device().index());
  const auto there = get_stream(dst.device().index());
  const auto order = [](c10::Stream first, c10::Stream then) {
    orEvent_t event = nullptr;
    record_event(&event, first, -1, /*timing=*/false);
    wait_for_event(event, then);
    orEventDestroy(event);
  };
  order(there, here);
  copy_elements(src, dst);
  order(here, there);
}
// [/copy-peers]

// [copy-convert] A copy that converts does so on the device.
// So the host need not wait, as long as the host's end is one piece of memory.
bool convert_on_device(const at::Tensor& src, const at::Tensor& dst) {
  const auto& host = dst.is_privateuseone() ? src : dst;
  if (!host.is_non_overlapping_and_dense() || host.is_conj() || host.is_neg() ||
      !is_pinned(host.const_data_ptr())) {
    return false;
  }
  const auto index = device_index(src, dst);
  const auto like_host = at::empty_strided(
      host.sizes(),
      host.strides(),
      host.options().device(c10::Device(at::kPrivateUse1, index)));
  if (dst.is_privateuseone()) {
    copy_bytes(src, like_host, /*non_blocking=*/true, index);
    copy_elements(like_host, dst);
  } else {
    copy_elements(src, like_host);
    copy_bytes(like_host, dst, /*non_blocking=*/true, index);
  }
  return true;
}
// [/copy-convert]

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
  if (self.device() == dst.device()) {
    copy_elements(self, dst);
  } else if (self.device().type() == dst.device().type()) {
    copy_between_devices(self, dst);
  } else if (self.sizes() == dst.sizes() && same_layout(self, dst)) {
    copy_bytes(self, dst, non_blocking, device_index(self, dst));
  } else if (!non_blocking || !convert_on_device(self, dst)) {
    copy_elements(self, dst);
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

// [copy-lazy] A copy that is made at the first write to either.
// PyTorch would make it on the current device, which may be another.
at::Tensor lazy_clone(const at::Tensor& self) {
  auto clone = at::native::_lazy_clone(self);
  for (const auto& tensor : {self, clone}) {
    auto* const impl = tensor.storage().unsafeGetStorageImpl();
    if (impl->has_materializer()) {
      impl->clear_materializer();
      impl->set_materializer([](c10::StorageImpl* storage) {
        const c10::DeviceGuard guard(storage->device());
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

// [copy-item] One element to the host, as item() wants it.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(
      self.numel() == 1,
      "a Tensor with ",
      self.numel(),
      " elements cannot be converted to Scalar");
  const auto device = self.device().index();
  at::Scalar result;
  const void* const source = to_kernel(self.const_data_ptr());
  launch(device, "aten::_local_scalar_dense", [&] {
    AT_DISPATCH_V2(
        self.scalar_type(),
        "_local_scalar_dense",
        AT_WRAP([&] {
          result = at::Scalar(*static_cast<const scalar_t*>(source));
        }),
        AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
        at::kComplexHalf,
        at::kHalf,
        at::kBool,
        at::kBFloat16,
        AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
        AT_EXPAND(AT_FLOAT8_TYPES));
  });
  return result;
}
// [/copy-item]

}  // namespace

void register_copies(const Registrar& add) {
  add("_copy_from", &copy_from);
  add("_copy_from_and_resize", &copy_from_and_resize);
  if (full_operator_set()) {
    add("_local_scalar_dense", &local_scalar_dense);
  }
}

// [copy-math-bits] A copy handles conjugate and negative bits itself.
// Without this, clone() on such a view recurses until the stack overflows:
// PyTorch would resolve the bit first, by copying.
static void let_copies_pass(torch::Library& library, const char* key) {
  using torch::CppFunction;
  if (!omitted(key)) {
    library.impl("_copy_from", CppFunction::makeFallthrough());
    library.impl("_copy_from_and_resize", CppFunction::makeFallthrough());
  }
}

TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  let_copies_pass(library, "Conjugate");
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  let_copies_pass(library, "Negative");
}
// [/copy-math-bits]

}  // namespace openreg
