#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
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
    int,          // thread
    uint64_t,     // stream
    size_t,       // bytes
    uint64_t,     // work
    uint64_t>;    // nanoseconds

// [trace-collect] Records come from the device's threads, which run no Python.
// So they are kept in C++ until Python asks. A name may be gone by then.
struct Trace {
  orSubscriber_t subscriber = nullptr;
  std::mutex mutex;
  std::vector<Record> records;

  static void add(const orTraceRecord* record, void* trace) {
    constexpr std::array phases{"launch", "start", "end"};
    constexpr std::array kinds{
        "kernel", "copy", "set", "host function", "turn"};
    if (record->phase == orTraceReturn || record->kind > orTraceTurn) {
      return;  // what the host does is for profilers
    }
    auto* const self = static_cast<Trace*>(trace);
    const std::lock_guard lock(self->mutex);
    self->records.emplace_back(
        phases[record->phase],
        kinds[record->kind],
        record->name,
        record->device,
        record->thread,
        record->stream,
        record->bytes,
        record->work,
        record->time_ns);
  }
};
// [/trace-collect]

std::unique_ptr<Trace> begin_trace() {
  auto trace = std::make_unique<Trace>();
  OPENREG_CHECK(orTraceSubscribe(&trace->subscriber, &Trace::add, trace.get()));
  return trace;
}

std::vector<Record> end_trace(Trace& trace) {
  OPENREG_CHECK(orTraceUnsubscribe(trace.subscriber));
  return std::move(trace.records);
}

}  // namespace

void bind_trace(py::module_& m) {
  py::class_<Trace>(m, "_Trace");
  m.def("_begin_trace", torch::wrap_pybind_function_no_gil(&begin_trace));
  m.def(
      "_end_trace",
      torch::wrap_pybind_function_no_gil(&end_trace),
      py::arg("trace"));
}

}  // namespace openreg
