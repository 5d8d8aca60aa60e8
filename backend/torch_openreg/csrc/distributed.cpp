#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/distributed/backend.h"
#include "torch_openreg/csrc/bindings.h"

namespace openreg {

namespace py = pybind11;

// [distributed-bind] The class inherits c10d's bindings for all other methods.
void bind_distributed(py::module_& m) {
  using Backend = c10::intrusive_ptr<c10d::Backend>;
  py::class_<Collectives, c10d::Backend, c10::intrusive_ptr<Collectives>>(
      m, "_Collectives")
      .def(
          py::init([](const Backend& transport, const Backend& words) {
            return c10::make_intrusive<Collectives>(transport, words);
          }),
          py::arg("transport"),
          py::arg("words"),
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &Collectives::getBackendOptions)
      // Asked of the processes that are in none of the parts of a split.
      .def(
          "perform_nocolor_split",
          [](Collectives&, const py::object&) {},
          py::arg("device"));
}
// [/distributed-bind]

}  // namespace openreg
