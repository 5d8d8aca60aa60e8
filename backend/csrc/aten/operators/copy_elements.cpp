#include "csrc/aten/core/copy_elements.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Scalar.h>
#include <ATen/ops/empty_strided.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/aten/forms/structured.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/host_allocator.h"

namespace openreg {
namespace {

// [copy-elements-kernel] A kernel copies what is converted or strided.
// It is ATen's copy kernel on aliases. Both sides are where a kernel may look:
// device memory through its alias, host memory as it is.
void launch_copy(const at::Tensor& src, const at::Tensor& dst) {
  dst.storage().mutable_data();  // parts it from its lazy clones
  // With one side on the host it is never queued: the host may move on. And
  // not every dtype converts to every other.
  const bool cannot_refuse = src.device().type() == dst.device().type() &&
                             most_kernels_take(src) && most_kernels_take(dst) &&
                             at::is_expandable_to(src.sizes(), dst.sizes());
  launch_on_aliases(
      {device_of_copy(src, dst), "aten::_copy_from"},
      queued_if(cannot_refuse),
      [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); },
      dst,
      src);
}
// [/copy-elements-kernel]

// [copy-elements-peers] A copy between devices is ordered in both streams.
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
  same_bytes(src, dst) ? copy_bytes(src, dst, /*non_blocking=*/true)
                       : launch_copy(src, dst);
  order(here, there);
}
// [/copy-elements-peers]

// [copy-elements-convert] A copy that converts does so on the device.
// So the host need not wait, as long as the host's end is one piece of memory.
bool convert_on_device(const at::Tensor& src, const at::Tensor& dst) {
  const auto& host = dst.is_privateuseone() ? src : dst;
  if (!host.is_non_overlapping_and_dense() || host.is_conj() || host.is_neg() ||
      !is_pinned(host.const_data_ptr())) {
    return false;
  }
  const auto like_host = at::empty_strided(
      host.sizes(),
      host.strides(),
      host.options().device(
          c10::Device(at::kPrivateUse1, device_of_copy(src, dst))));
  if (dst.is_privateuseone()) {
    copy_bytes(src, like_host, /*non_blocking=*/true);
    launch_copy(like_host, dst);
  } else {
    launch_copy(src, like_host);
    copy_bytes(like_host, dst, /*non_blocking=*/true);
  }
  return true;
}
// [/copy-elements-convert]

// [copy-elements-item] Copies one element to the host, for item().
at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(
      self.numel() == 1,
      "a Tensor with ",
      self.numel(),
      " elements cannot be converted to Scalar");
  at::Scalar result;
  const Call call(self.device().index(), "aten::_local_scalar_dense");
  const void* const source = to_kernel(self.const_data_ptr());
  launch(call, Runs::kInTurn, [&] {
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
// [/copy-elements-item]

}  // namespace

// [copy-elements-ways] Chooses one of three ways to copy elements.
void copy_elements(
    const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const bool one_side = src.device().type() == dst.device().type();
  if (one_side && src.device() != dst.device()) {
    copy_between_devices(src, dst);
  } else if (one_side || !non_blocking || !convert_on_device(src, dst)) {
    launch_copy(src, dst);
  }
}
// [/copy-elements-ways]

void register_item(torch::Library& library) {
  library.impl("_local_scalar_dense", &local_scalar_dense);
}

}  // namespace openreg
