#pragma once

#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include "csrc/aten/core/arguments.h"
#include "csrc/runtime/address.h"
#include "csrc/runtime/launch.h"

// ATen's CPU kernels are the emulated device's kernel library. They run in
// device memory: an alias is a CPU tensor over a device tensor's bytes, at the
// address where kernels find them, so nothing is copied.

namespace openreg {

// [alias-scope] While this lives, the thread runs a kernel of `device`.
// CPU tensors that the kernel makes lie in device memory, unless `device` is
// -1, and the operators that it calls on its aliases pass autograd and
// autocast by.
class KernelScope {
 public:
  explicit KernelScope(c10::DeviceIndex device);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  c10::DeviceIndex previous_;
  c10::impl::ExcludeDispatchKeyGuard below_autograd_;
};
// [/alias-scope]

// A CPU tensor over the bytes of a device tensor, which it does not keep alive;
// any other tensor as it is.
at::Tensor borrow(const at::Tensor& tensor);

// As `borrow`, for work that runs later. A CPU tensor is copied, because its
// owner may change it before then.
at::Tensor own(const at::Tensor& tensor);

// [alias-own] Arguments as a kernel borrows them, and as queued work owns them.
// Sizes belong to the caller, so they are copied; numbers are copied anyway.
inline std::optional<at::Tensor> borrow(const std::optional<at::Tensor>& t) {
  return t.has_value() ? std::optional(borrow(*t)) : std::nullopt;
}
inline std::optional<at::Tensor> own(const std::optional<at::Tensor>& t) {
  return t.has_value() ? std::optional(own(*t)) : std::nullopt;
}

inline std::vector<int64_t> own(at::IntArrayRef sizes) {
  return sizes.vec();
}
// [/alias-own]
struct OwnedSizes {
  std::optional<std::vector<int64_t>> sizes;
  operator at::OptionalIntArrayRef() const {
    return sizes.has_value() ? at::OptionalIntArrayRef(*sizes) : std::nullopt;
  }
};
inline OwnedSizes own(at::OptionalIntArrayRef sizes) {
  return {sizes.has_value() ? std::optional(sizes->vec()) : std::nullopt};
}

template <typename T>
const T& borrow(const T& value) {
  return value;
}
template <typename T>
T own(const T& value) {
  return value;
}

// Raises what a kernel refuses by its own name by that of the operator, and by
// the CPU's name by that of `device`. Any other error is left to the caller.
void name_operator(
    const c10::Error& error, std::string_view name, c10::DeviceIndex device);

// Runs a kernel of the CPU's on this thread in its turn; what it allocates lies
// on `memory`, or on the host for -1.
template <typename Kernel>
void run_kernel(
    const char* name,
    c10::DeviceIndex device,
    c10::DeviceIndex memory,
    Kernel&& kernel) {
  launch(device, name, [&] {
    const KernelScope scope(memory);
    try {
      kernel();
    } catch (const c10::Error& error) {
      name_operator(error, name, device);
      throw;
    }
  });
}

// [alias-run-or-queue] With its result made, a kernel runs here or is queued.
// kernel(args...) runs here if the stream is idle or `sure` is false, else when
// the stream comes to it. `sure` says that the kernel cannot refuse what it
// got: an error must come at the call. What it still allocates is workspace,
// and host memory on either thread: a worker may not allocate on the device,
// and no launch mode shall need more memory than another.
template <typename Kernel, typename... Args>
void run_or_queue(
    bool sure,
    c10::DeviceIndex device,
    const char* name,
    Kernel kernel,
    const Args&... args) {
  if (!sure || runs_inline(device)) {
    auto borrowed = std::make_tuple(borrow(args)...);
    run_kernel(name, device, -1, [&] { std::apply(kernel, borrowed); });
  } else {
    enqueue(device, name, [kernel, ... owned = own(args)]() mutable {
      const KernelScope scope(-1);
      kernel(owned...);
    });
  }
}
// [/alias-run-or-queue]

// The aliases of one kernel call that takes its turn.
class Aliases {
 public:
  explicit Aliases(c10::DeviceIndex device) : device_(device) {}

  // A CPU tensor over the bytes of `tensor`; what is not on the device comes
  // back as it is. Tensors that share a storage get aliases that share one, and
  // a tensor that is passed twice gets one alias: kernels know `x.op_(y)` from
  // `op(x, y, out=z)` by the identity of their arguments. A kernel may write
  // and resize what is `written`, and nothing else: its memory is the tensor's
  // own, and `commit` carries its new shape and storage over.
  at::Tensor alias(const at::Tensor& tensor, bool written = false);

  // To be called once, after the kernel.
  void commit();

  // The device tensor for a CPU tensor that the kernel returned: the argument
  // itself, a view of an argument, or a new one that takes the memory over.
  at::Tensor adopt(const at::Tensor& result);

 private:
  struct StoragePair {
    c10::Storage device;
    c10::Storage shadow;
  };
  struct TensorPair {
    at::Tensor device;
    at::Tensor alias;
    bool written;
  };
  TensorPair* find(const at::Tensor& tensor);
  const c10::Storage& shadow_of(const c10::Storage& storage, bool written);
  c10::Storage device_storage_of(const c10::Storage& storage);

  c10::DeviceIndex device_;
  c10::SmallVector<StoragePair, 6> storages_;
  c10::SmallVector<TensorPair, 6> tensors_;
};

// [alias-run] How a kernel with a signature runs on aliases.
// `kernel` gets a function from device tensor to alias and returns the result
// on aliases, a tensor or a tuple of tensors; those come back on the device.
template <typename Kernel>
auto run_on_aliases(
    const char* name, c10::DeviceIndex device, Kernel&& kernel) {
  Aliases aliases(device);
  const auto alias = [&](const at::Tensor& tensor) {
    return aliases.alias(tensor);
  };
  decltype(kernel(alias)) result;
  run_kernel(name, device, device, [&] { result = kernel(alias); });
  if constexpr (std::is_same_v<decltype(result), at::Tensor>) {
    return aliases.adopt(result);
  } else {
    return std::apply(
        [&](const auto&... tensors) {
          return std::make_tuple(aliases.adopt(tensors)...);
        },
        result);
  }
}
// [/alias-run]

}  // namespace openreg
