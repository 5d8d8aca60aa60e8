#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "csrc/aten/core/arguments.h"
#include "csrc/graph/capture.h"
#include "csrc/runtime/address.h"
#include "csrc/runtime/launch.h"
#include "csrc/runtime/operator_names.h"

// ATen's CPU kernels are the emulated device's kernel library. They run in
// device memory: an alias is a CPU tensor over a device tensor's bytes, at the
// address where kernels find them, so nothing is copied.

namespace openreg {

// In the place of a device, where a kernel's memory shall be the host's.
constexpr c10::DeviceIndex host_memory = -1;

// [alias-scope] While this object lives, the thread runs a kernel.
// CPU tensors that the kernel makes lie on the device `memory`, or on the host,
// and the operators that it calls on its aliases skip autograd and autocast.
class KernelScope {
 public:
  explicit KernelScope(c10::DeviceIndex memory);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  c10::DeviceIndex previous_;
  c10::impl::ExcludeDispatchKeyGuard below_autograd_;
};
// [/alias-scope]

// [alias-one-result] While this object lives, a kernel makes one result.
// A block of `bytes` may be the result, so it is the device's. All others are
// workspace, and the host's.
class OneResult {
 public:
  explicit OneResult(size_t bytes);
  ~OneResult();
  OneResult(const OneResult&) = delete;
  OneResult& operator=(const OneResult&) = delete;
};
// [/alias-one-result]

// A CPU tensor over the bytes of a device tensor, which it does not keep alive;
// any other tensor as it is.
at::Tensor borrow(const at::Tensor& tensor);

// As `borrow`, for work that runs later. The number in a CPU tensor of
// dimension 0, the only kind that an operator takes beside the device's, is
// copied, because its owner may change it before then.
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
inline c10::OptionalArray<int64_t> own(at::OptionalIntArrayRef sizes) {
  c10::OptionalArray<int64_t> owned;
  owned = sizes;
  return owned;
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

// A kernel of the CPU's, made one of the device's that takes its turn.
template <typename Kernel>
auto in_scope(const Call& call, c10::DeviceIndex memory, Kernel&& kernel) {
  return [&call, memory, &kernel] {
    const KernelScope scope(memory);
    try {
      kernel();
    } catch (const c10::Error& error) {
      name_operator(error, call.name, call.device);
      throw;
    }
  };
}

// [alias-launch] Launches a kernel that writes into its arguments.
// What may be queued still runs here if the stream is idle. What the kernel
// allocates is workspace, and host memory on either thread: a worker may not
// allocate on the device, and no launch mode shall need more memory than
// another.
template <typename Kernel, typename... Args>
void launch_on_aliases(
    const Call& call, Runs runs, Kernel kernel, const Args&... args) {
  if (runs == Runs::kInTurn || call.runs_inline()) {
    auto borrowed = std::make_tuple(borrow(args)...);
    const auto run = [&] { std::apply(kernel, borrowed); };
    launch(call, Runs::kInTurn, in_scope(call, host_memory, run));
  } else {
    launch(call, runs, [kernel, ... owned = own(args)]() mutable {
      const KernelScope scope(host_memory);
      kernel(owned...);
    });
  }
}
// [/alias-launch]

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

// An argument as a kernel gets it: with an alias in the place of a tensor.
template <typename T>
decltype(auto) alias_in(Aliases& aliases, const T& value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return aliases.alias(value);
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    return value.has_value() ? std::optional(aliases.alias(*value)) : value;
  } else {
    return (value);
  }
}

// The same in a capture: its results are made now, and it runs in each replay.
template <typename Kernel, typename... Args>
auto capture_on_aliases(const Call& call, Kernel kernel, const Args&... args);

// [alias-results] A kernel that allocates its results runs in its turn.
// They are a tensor or a tuple of tensors, and come back on the device.
template <typename Kernel, typename... Args>
auto launch_on_aliases(const Call& call, Kernel kernel, const Args&... args) {
  if (capture_of(call.stream) != nullptr) {
    return capture_on_aliases(call, kernel, args...);
  }
  Aliases aliases(call.device);
  std::invoke_result_t<Kernel, const Args&...> result;
  const auto run = [&] { result = kernel(alias_in(aliases, args)...); };
  launch(call, Runs::kInTurn, in_scope(call, call.device, run));
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
// [/alias-results]

// [alias-function] Makes an operator from a function that takes aliases.
template <typename Op, auto function>
struct OnAliases;

template <
    typename Op,
    typename Result,
    typename... Args,
    Result (*function)(Args...)>
struct OnAliases<Op, function> {
  static Result call(Args... args) {
    const Call call(common_device(args...), full_name<Op>);
    return launch_on_aliases(call, function, args...);
  }
};
// [/alias-function]

template <typename Op, auto function>
void register_on_aliases(torch::Library& library) {
  library.impl(
      std::string(short_name<Op>).c_str(), &OnAliases<Op, function>::call);
}

}  // namespace openreg

// It needs what is above, and is needed where that is used.
#include "csrc/graph/captured.h"
