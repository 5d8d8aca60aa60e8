#include <pybind11/pybind11.h>

#include <chrono>
#include <thread>

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/launch.h"
#include "csrc/runtime/stream.h"
#include "torch_openreg/csrc/bindings.h"

// Streams as Python sees them: a device's index and a stream's number.

namespace openreg {
namespace {

namespace py = pybind11;

c10::Stream to_stream(int64_t device, c10::StreamId id) {
  const c10::Device place(c10::kPrivateUse1, to_index(device));
  return c10::Stream(c10::Stream::UNSAFE, place, id);
}

std::pair<int, int> priority_range() {
  int least = 0;
  int greatest = 0;
  OPENREG_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
  return {least, greatest};
}

// [streams-wait-value] The stream waits until `flag`, pinned, holds `value`.
void wait_value(
    int64_t device, c10::StreamId id, const at::Tensor& flag, uint64_t value) {
  const c10::Stream stream = to_stream(device, id);
  const auto& data = flag.storage().data_ptr();
  OPENREG_CHECK(orStreamWaitValue64(
      handle_of(stream), static_cast<const uint64_t*>(data.get()), value));
  host_allocator()->record_event(data.get(), data.get_context(), stream);
}
// [/streams-wait-value]

// A kernel on the current stream that takes its time and no CPU.
void sleep(int64_t device, int64_t milliseconds) {
  launch({to_index(device), "sleep"}, Runs::kQueued, [milliseconds] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  });
}

}  // namespace

void bind_streams(py::module_& m) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  const auto device = py::arg("device");
  const auto id = py::arg("stream_id");
  const auto current = [](int64_t index) {
    return get_stream(to_index(index)).id();
  };
  const auto usual = [](int64_t index) {
    return default_stream(to_index(index)).id();
  };
  const auto set = [](int64_t index, c10::StreamId stream) {
    exchange_stream(to_stream(index, stream));
  };
  const auto external = [](int64_t index, intptr_t handle) {
    const auto stream = reinterpret_cast<orStream_t>(handle);
    return external_stream(to_index(index), stream).id();
  };
  const auto priority = [](int64_t index, c10::StreamId stream) {
    return stream_priority(to_stream(index, stream));
  };
  m.def("_current_stream", wrap_pybind_function(current), device);
  m.def("_default_stream", wrap_pybind_function(usual), device);
  m.def("_set_stream", wrap_pybind_function(set), device, id);
  m.def(
      "_external_stream",
      wrap_pybind_function(external),
      device,
      py::arg("handle"));
  m.def("_stream_priority", wrap_pybind_function(priority), device, id);
  m.def("_stream_priority_range", wrap_pybind_function(&priority_range));
  m.def(
      "_stream_wait_value",
      wrap_pybind_function_no_gil(&wait_value),
      device,
      id,
      py::arg("flag"),
      py::arg("value"));
  m.def(
      "_sleep",
      wrap_pybind_function_no_gil(&sleep),
      device,
      py::arg("milliseconds"));
}

}  // namespace openreg
