#include <pybind11/pybind11.h>

#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "csrc/aten/core/copy_elements.h"
#include "csrc/runtime/address.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/launch.h"
#include "torch_openreg/csrc/bindings.h"

// Kernels that Inductor has made, as Python calls them.

namespace openreg {
namespace {

namespace py = pybind11;

// What Python calls with an array of arguments.
using Method = PyObject* (*)(PyObject* self, PyObject* const* args, Py_ssize_t);

// Its `doc` begins with the signature, as pybind11 writes it.
PyMethodDef as_method(const char* name, Method function, const char* doc) {
  const auto any = reinterpret_cast<void (*)()>(function);
  return {name, reinterpret_cast<PyCFunction>(any), METH_FASTCALL, doc};
}

// A launch needs a name that stays readable, and may outlive its kernel.
const char* keep_name(const std::string& name) {
  static std::mutex mutex;
  static auto* const names = new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

// [compiled-arguments] A kernel's arguments, as machine words that it owns.
// A number in a tensor of the CPU is read now, as it would be in eager mode.
struct Arguments {
  explicit Arguments(size_t size) : size_(size) {
    words.reserve(size);
  }

  void add(py::handle arg, const char* kernel) {
    if (THPVariable_Check(arg.ptr())) {
      add(THPVariable_Unpack(arg.ptr()), kernel);
    } else if (PyFloat_Check(arg.ptr())) {
      words.push_back(std::bit_cast<int64_t>(arg.cast<double>()));
    } else {
      words.push_back(arg.cast<int64_t>());
    }
  }

  std::vector<int64_t> words;
  c10::DeviceIndex device = -1;

 private:
  using Value = std::array<int64_t, 2>;  // the widest dtype has 16 bytes

  void add(const at::Tensor& tensor, const char* kernel);

  size_t size_;
  std::vector<Value> values_;
};
// [/compiled-arguments]

// [compiled-tensor] A tensor is passed as an address that kernels can use.
void Arguments::add(const at::Tensor& tensor, const char* kernel) {
  const void* address = nullptr;
  if (tensor.is_cpu() && tensor.dim() == 0) {
    values_.reserve(size_);  // they stay where they are
    std::memcpy(
        values_.emplace_back().data(),
        tensor.const_data_ptr(),
        tensor.element_size());
    address = values_.back().data();
  } else {
    const c10::Device found = tensor.device();
    device = device == -1 ? found.index() : device;
    TORCH_CHECK(
        found == c10::Device(c10::kPrivateUse1, device),
        "openreg: the compiled kernel ",
        kernel,
        " expects all tensors on one openreg device, but got one on ",
        found);
    note_use(device, tensor.storage());
    address = to_kernel(tensor.const_data_ptr());
  }
  words.push_back(reinterpret_cast<int64_t>(address));
}
// [/compiled-tensor]

// [compiled-kernel] A function that Inductor compiled, launched like any other.
struct Kernel {
  const char* name;
  void (*function)(const int64_t* words);
};

// Python calls it without a tuple of the arguments, and without pybind11.
PyObject* launch_kernel(
    PyObject* self, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto* const kernel =
      static_cast<const Kernel*>(PyCapsule_GetPointer(self, nullptr));
  Arguments arguments(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    arguments.add(args[i], kernel->name);
  }
  launch(
      Call(arguments.device, kernel->name),
      Runs::kQueued,
      [function = kernel->function, arguments = std::move(arguments)] {
        function(arguments.words.data());
      });
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

py::object make_kernel(const std::string& name, uintptr_t function) {
  static PyMethodDef method = as_method(
      "compiled_kernel", &launch_kernel, "compiled_kernel(*args) -> None");
  const py::capsule kernel(
      new Kernel{
          keep_name(name),
          reinterpret_cast<decltype(Kernel::function)>(function)},
      [](void* kernel) { delete static_cast<Kernel*>(kernel); });
  return py::reinterpret_steal<py::object>(
      PyCFunction_New(&method, kernel.ptr()));
}
// [/compiled-kernel]

// [compiled-empty] A shorter way to a result's memory than empty_strided.
c10::SmallVector<int64_t, 8> to_sizes(py::handle tuple) {
  c10::SmallVector<int64_t, 8> sizes;
  for (const py::handle size : tuple.cast<py::tuple>()) {
    sizes.push_back(size.cast<int64_t>());
  }
  return sizes;
}

PyObject* empty_strided(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_INTERNAL_ASSERT(count == 4 && THPDtype_Check(args[2]));
  const auto device = to_index(py::handle(args[3]).cast<int64_t>());
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  return THPVariable_Wrap(
      at::Tensor(
          at::detail::empty_strided_generic(
              to_sizes(args[0]),
              to_sizes(args[1]),
              device_allocator(),
              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
              reinterpret_cast<THPDtype*>(args[2])->scalar_type)));
  END_HANDLE_TH_ERRORS
}
// [/compiled-empty]

}  // namespace

void bind_compiled(py::module_& m) {
  m.def(
      "_compiled_kernel",
      torch::wrap_pybind_function(&make_kernel),
      py::arg("name"),
      py::arg("function"));
  static PyMethodDef methods[] = {
      as_method(
          "_empty_strided",
          &empty_strided,
          "_empty_strided(size: tuple[int, ...], stride: tuple[int, ...], "
          "dtype: torch.dtype, device: int, /) -> torch.Tensor"),
      PyMethodDef{}};
  PyModule_AddFunctions(m.ptr(), methods);
}

}  // namespace openreg
