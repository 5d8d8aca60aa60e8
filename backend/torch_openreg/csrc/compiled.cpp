#include <pybind11/pybind11.h>

#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "csrc/aten/core/copy_elements.h"
#include "csrc/runtime/address.h"
#include "csrc/runtime/launch.h"
#include "torch_openreg/csrc/bindings.h"

// Kernels that Inductor has made, as Python calls them.

namespace openreg {
namespace {

namespace py = pybind11;

// A launch needs a name that stays readable, and may outlive its kernel.
const char* keep_name(const std::string& name) {
  static std::mutex mutex;
  static auto* const names = new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

// [compiled-arguments] A kernel's arguments, as words that it owns.
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

// [compiled-tensor] Only a launch may follow an address of the device.
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
class CompiledKernel {
 public:
  using Function = void (*)(const int64_t* words);

  CompiledKernel(const std::string& name, uintptr_t function)
      : name_(keep_name(name)),
        function_(reinterpret_cast<Function>(function)) {}

  void operator()(const py::args& args) const {
    Arguments arguments(args.size());
    for (const py::handle arg : args) {
      arguments.add(arg, name_);
    }
    const Call call(arguments.device, name_);
    const py::gil_scoped_release release;
    launch(
        call,
        Runs::kQueued,
        [function = function_, arguments = std::move(arguments)] {
          function(arguments.words.data());
        });
  }

 private:
  const char* name_;
  Function function_;
};
// [/compiled-kernel]

}  // namespace

void bind_compiled(py::module_& m) {
  py::class_<CompiledKernel>(m, "_CompiledKernel")
      .def(
          py::init<const std::string&, uintptr_t>(),
          py::arg("name"),
          py::arg("function"))
      .def(
          "__call__", torch::wrap_pybind_function(&CompiledKernel::operator()));
}

}  // namespace openreg
