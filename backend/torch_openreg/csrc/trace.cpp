#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/Exceptions.h>

#include "torch_openreg/csrc/bindings.h"

// What the devices do, collected for Python.

namespace openreg {
namespace {

namespace py = pybind11;

using Record = std::tuple<
    std::string,  // phase
    std::string,  // kind
    std::string,  // name
    int,          // device
    uint64_t,     // stream
    size_t,       // bytes
    uint64_t,     // work
    uint64_t>;    // nanoseconds

// [trace-collect] Records come from the device's threads, which own no Python.
// So they are kept in C++ until Python asks. A name may be gone by then.
struct Trace {
  std::mutex mutex;
  bool running = false;
  std::vector<Record> records;

  static void add(const orTraceRecord* record, void* trace) {
    constexpr std::array phases{"launch", "start", "end"};
    constexpr std::array kinds{"kernel", "copy", "set", "host function"};
    auto* const self = static_cast<Trace*>(trace);
    const std::lock_guard lock(self->mutex);
    self->records.emplace_back(
        phases[record->phase],
        kinds[record->kind],
        record->name,
        record->device,
        record->stream,
        record->bytes,
        record->work,
        record->time_ns);
  }
};
// [/trace-collect]

// Workers may outlive the process's statics.
Trace& trace() {
  static auto* const only = new Trace;
  return *only;
}

void begin_trace() {
  const std::lock_guard lock(trace().mutex);
  TORCH_CHECK(
      !trace().running,
      "The devices are traced already. Expected one trace at a time; leave the "
      "`with torch.openreg.testing.trace()` that is open.");
  OPENREG_CHECK(orTraceSubscribe(&Trace::add, &trace()));
  trace().running = true;
}

std::vector<Record> end_trace() {
  OPENREG_CHECK(orTraceSubscribe(nullptr, nullptr));
  const std::lock_guard lock(trace().mutex);
  trace().running = false;
  return std::exchange(trace().records, {});
}

}  // namespace

void bind_trace(py::module_& m) {
  m.def("_begin_trace", torch::wrap_pybind_function_no_gil(&begin_trace));
  m.def("_end_trace", torch::wrap_pybind_function_no_gil(&end_trace));
}

}  // namespace openreg
