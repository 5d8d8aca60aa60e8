#include "torch_openreg/csrc/bindings.h"

#include <pybind11/stl.h>

#include <tuple>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/runtime/storage.h"

// Storages on their way from one process to another, as Python sees them.

namespace openreg {
namespace {

namespace py = pybind11;

// [sharing-bindings] Turns a storage into numbers, and numbers into a storage.
using Segment = std::tuple<int, size_t, size_t>;  // descriptor, offset, size

std::tuple<Segment, size_t, size_t> share(const at::Storage& storage) {
  const auto [segment, start, bytes] = share_storage(storage);
  return {{segment.fd, segment.offset, segment.size}, start, bytes};
}

at::Storage open(
    c10::DeviceIndex device,
    const Segment& segment,
    size_t start,
    size_t bytes,
    int lease) {
  const auto [fd, offset, size] = segment;
  return open_storage(device, {{fd, offset, size}, start, bytes}, lease);
}
// [/sharing-bindings]

}  // namespace

void bind_sharing(py::module_& m) {
  m.def(
      "_share_storage",
      torch::wrap_pybind_function(&share),
      py::arg("storage"));
  m.def(
      "_open_storage",
      torch::wrap_pybind_function(&open),
      py::arg("device"),
      py::arg("segment"),
      py::arg("start"),
      py::arg("bytes"),
      py::arg("lease"));
}

}  // namespace openreg
