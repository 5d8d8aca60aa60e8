#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>
#include <torch/library.h>

// One fact about a tensor, that its elements lie in tiles of 2 x 2, and three
// places where a backend may keep it.

namespace {

constexpr auto kDevice = c10::kPrivateUse1;

// [custom-tensor-meta] The smallest way: an object attached to the metadata.
struct Tiled final : c10::BackendMeta {};

bool is_tiled(const at::Tensor& tensor) {
  auto* const meta = tensor.unsafeGetTensorImpl()->get_backend_meta();
  return dynamic_cast<Tiled*>(meta) != nullptr;
}

void mark_tiled(const at::Tensor& tensor) {
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Tiled>());
}
// [/custom-tensor-meta]

// [custom-tensor-tile] Two kernels of a device that stores matrices in tiles.
at::Tensor swap_middle(const at::Tensor& x, int64_t second, int64_t third) {
  return x.reshape({x.size(0) / 2, second, third, 2})
      .transpose(1, 2)
      .reshape(x.sizes());
}

at::Tensor tile(const at::Tensor& x) {
  TORCH_CHECK(
      x.dim() == 2 && x.size(0) % 2 == 0 && x.size(1) % 2 == 0,
      "tile: expected a matrix with even sides, but got ",
      x.sizes());
  auto result = swap_middle(x, 2, x.size(1) / 2);
  mark_tiled(result);
  return result;
}

// Does nothing to a matrix that is not tiled, as such kernels do.
at::Tensor untile(const at::Tensor& x) {
  return is_tiled(x) ? swap_middle(x, x.size(1) / 2, 2) : x;
}
// [/custom-tensor-tile]

// [custom-tensor-save] With two functions, torch.save keeps this fact.
using Facts = std::unordered_map<std::string, bool>;

[[maybe_unused]] const bool registered = [] {
  torch::jit::TensorBackendMetaRegistry(
      kDevice,
      [](const at::Tensor& tensor, Facts& facts) {
        if (is_tiled(tensor)) {
          facts["tiled"] = true;
        }
      },
      [](const at::Tensor& tensor, Facts& facts) {
        if (facts.count("tiled") != 0) {
          mark_tiled(tensor);
        }
      });
  return true;
}();
// [/custom-tensor-save]

// [custom-tensor-storage] A fact about the bytes, common to all views of them.
struct TiledStorage final : c10::StorageImpl {
  using c10::StorageImpl::StorageImpl;
  bool tiled = false;
};

c10::intrusive_ptr<c10::StorageImpl> make_storage(
    c10::StorageImpl::use_byte_size_t tag,
    c10::SymInt bytes,
    c10::DataPtr data,
    c10::Allocator* allocator,
    bool resizable) {
  if (data == nullptr && bytes != 0) {
    data = allocator->allocate(bytes.as_int_unchecked());
  }
  return c10::make_intrusive<TiledStorage>(
      tag, std::move(bytes), std::move(data), allocator, resizable);
}

TiledStorage* tiled_storage(const at::Tensor& tensor) {
  return dynamic_cast<TiledStorage*>(tensor.storage().unsafeGetStorageImpl());
}

void mark_storage(const at::Tensor& tensor) {
  auto* const storage = tiled_storage(tensor);
  TORCH_CHECK(storage != nullptr, "mark_storage: not a TiledStorage");
  storage->tiled = true;
}
// [/custom-tensor-storage]

// [custom-tensor-impl] A tensor that is more than sizes, strides and a storage.
struct TiledImpl final : c10::TensorImpl {
  TiledImpl(
      c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta type)
      : TensorImpl(std::move(storage), keys, type) {}

  bool tiled = true;

  // For detach() and for what autograd saves. Both overloads, or the second
  // makes a plain TensorImpl.
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version, bool allow_change) const override {
    return copy(version, allow_change);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version, bool allow_change) const override {
    return copy(std::move(version), allow_change);
  }

  // For `x.data = other`.
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override {
    TensorImpl::shallow_copy_from(other);
    const auto* const impl = dynamic_cast<const TiledImpl*>(other.get());
    tiled = impl != nullptr && impl->tiled;
  }

 private:
  template <typename Version>
  c10::intrusive_ptr<TensorImpl> copy(Version&& version, bool allow) const {
    auto result = c10::make_intrusive<TiledImpl>(
        c10::Storage(storage_), key_set_, data_type_);
    copy_tensor_metadata(
        this, result.get(), std::forward<Version>(version), allow);
    result->tiled = tiled;
    return result;
  }
};
// [/custom-tensor-impl]

at::Tensor wrap(const at::Tensor& x) {
  auto* const impl = x.unsafeGetTensorImpl();
  auto result = at::detail::make_tensor<TiledImpl>(
      c10::Storage(x.storage()),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      x.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(
      impl->sizes(), impl->strides(), impl->storage_offset());
  return result;
}

bool is_wrapped(const at::Tensor& x) {
  const auto* const impl =
      dynamic_cast<const TiledImpl*>(x.unsafeGetTensorImpl());
  return impl != nullptr && impl->tiled;
}

}  // namespace

TORCH_LIBRARY(custom_tensor, library) {
  library.def("tile(Tensor x) -> Tensor", &tile);
  library.def("untile(Tensor x) -> Tensor", &untile);
  library.def("is_tiled(Tensor x) -> bool", &is_tiled);
  library.def("use_storage() -> ()", [] {
    c10::SetStorageImplCreate(kDevice, &make_storage);
  });
  library.def("mark_storage(Tensor x) -> ()", &mark_storage);
  library.def("is_storage_marked(Tensor x) -> bool", [](const at::Tensor& x) {
    const auto* const storage = tiled_storage(x);
    return storage != nullptr && storage->tiled;
  });
  library.def("wrap(Tensor x) -> Tensor", &wrap);
  library.def("is_wrapped(Tensor x) -> bool", &is_wrapped);
}

// expect: ok
