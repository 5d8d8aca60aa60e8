#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <thread>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/aten/core/fallback.h"
#include "csrc/aten/core/registry.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/generator.h"
#include "csrc/runtime/wait.h"
#include "torch_openreg/csrc/bindings.h"

// The runtime's functions as Python sees them. torch::wrap_pybind_function
// turns a c10::Error into the Python exception that PyTorch would raise.

namespace openreg {
namespace {

namespace py = pybind11;

// [bindings-init] From here on, a forked child refuses to use the device.
void init() {
  at::globalContext().lazyInitDevice(at::kPrivateUse1);
  torch::utils::register_fork_handler_for_device_init(at::kPrivateUse1);
}

bool is_in_bad_fork() {
  return torch::utils::is_device_in_bad_fork(at::kPrivateUse1);
}
// [/bindings-init]

// [bindings-drain] Autograd's threads free their last graph before exit.
// A graph keeps Python objects of the thread that ran backward, and dropping
// one after the interpreter has gone ends the process. A further backward
// makes each device's thread drop what it had; it comes from a thread of its
// own, which has no Python objects to keep. Without elements there is nothing
// to allocate or to run, so a full or failed device is drained like any other.
void drain_autograd() {
  std::thread([] {
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      try {
        const c10::Device device(at::kPrivateUse1, index);
        const auto x = at::empty({0}, device).set_requires_grad(true);
        x.clone().backward(x.detach());
      } catch (const std::exception&) {
        // Exit never raises.
      }
    }
  }).join();
}
// [/bindings-drain]

// `function` of an index, as a function of a Python integer.
template <auto function>
auto by_index() {
  return [](int64_t device) { return function(to_index(device)); };
}

// [bindings-generator] One Python object per generator, however often asked.
py::object get_default_generator(c10::DeviceIndex device) {
  const auto& generator = at::globalContext().defaultGenerator(
      c10::Device(at::kPrivateUse1, device));
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(generator));
}
// [/bindings-generator]

std::string describe(const orDeviceProp& properties) {
  std::ostringstream text;
  text << "_OpenRegDeviceProperties(name='" << properties.name
       << "', major=" << properties.major << ", minor=" << properties.minor
       << ", total_memory=" << (properties.total_memory >> 20)
       << "MB, multi_processor_count=" << properties.multi_processor_count
       << ")";
  return text.str();
}

void bind_properties(py::module_& m) {
  py::class_<orDeviceProp>(m, "_OpenRegDeviceProperties")
      .def_readonly("name", &orDeviceProp::name)
      .def_readonly("major", &orDeviceProp::major)
      .def_readonly("minor", &orDeviceProp::minor)
      .def_readonly("total_memory", &orDeviceProp::total_memory)
      .def_readonly(
          "multi_processor_count", &orDeviceProp::multi_processor_count)
      .def("__repr__", &describe);
  m.def(
      "_get_device_properties",
      torch::wrap_pybind_function(by_index<device_properties>()),
      py::arg("device"));
}

// The guard chosen by PyTorch, given a device of any type.
void guard_set_device(c10::Device device) {
  c10::impl::getDeviceGuardImpl(at::kPrivateUse1)->setDevice(device);
}

// [bindings-device] The device functions, one line each.
void bind_device(py::module_& m) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  const auto device = py::arg("device");
  m.def("_get_device_count", &device_count);
  m.def("_get_device", wrap_pybind_function(&current_device));
  m.def("_set_device", wrap_pybind_function(by_index<set_device>()), device);
  m.def(
      "_exchange_device",
      wrap_pybind_function(by_index<exchange_device>()),
      device);
  m.def(
      "_maybe_exchange_device",
      wrap_pybind_function(by_index<maybe_exchange_device>()),
      device);
  // What may wait must not keep other Python threads waiting.
  m.def(
      "_synchronize",
      wrap_pybind_function_no_gil(by_index<synchronize_device>()),
      device);
  m.def(
      "_reset_device",
      wrap_pybind_function_no_gil(by_index<reset_device>()),
      device);
}
// [/bindings-device]

// [bindings-fallback] The copying fallback's counts and policy.
void bind_fallback(py::module_& m) {
  m.def(
      "_set_fallback_policy",
      torch::wrap_pybind_function(&set_fallback_policy),
      py::arg("policy"));
  m.def("_fallback_policy", &fallback_policy);
  m.def("_fallback_counts", &fallback_counts);
  m.def("_reset_fallback_counts", &reset_fallback_counts);
}
// [/bindings-fallback]

// [bindings-lock] A wait of the runtime lets other Python threads run.
void* release_interpreter_lock() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread()
                                                  : nullptr;
}

void acquire_interpreter_lock(void* state) {
  PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}
// [/bindings-lock]

void bind(py::module_& m) {
  interpreter_lock = {&release_interpreter_lock, &acquire_interpreter_lock};
  m.def("_check_environment", torch::wrap_pybind_function([] {
          check_environment();
          check_registration();
        }));
  m.def("_init", torch::wrap_pybind_function_no_gil(&init));
  m.def("_is_in_bad_fork", &is_in_bad_fork);
  m.def("_drain_autograd", torch::wrap_pybind_function_no_gil(&drain_autograd));
  m.def(
      "_get_default_generator",
      torch::wrap_pybind_function(by_index<get_default_generator>()),
      py::arg("device"));
  m.def(
      "_guard_set_device",
      torch::wrap_pybind_function(&guard_set_device),
      py::arg("device"));
  bind_device(m);
  bind_properties(m);
  bind_fallback(m);
  bind_sharing(m);
  bind_memory(m);
  bind_streams(m);
  bind_trace(m);
  bind_compiled(m);
#ifndef OPENREG_MINIMAL
  bind_distributed(m);
#endif
}

}  // namespace
}  // namespace openreg

// [bindings-module] What stub.c calls when Python imports torch_openreg._C.
extern "C" OPENREG_EXPORT PyObject* openreg_create_module() {
  static pybind11::module_::module_def definition;
  auto module = pybind11::module_::create_extension_module(
      "torch_openreg._C", "The runtime of the openreg backend.", &definition);
  openreg::bind(module);
  return module.release().ptr();
}
// [/bindings-module]
