#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <ATen/core/CachingHostAllocator.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/runtime/allocator.h"
#include "torch_openreg/csrc/bindings.h"

// Of memory, what torch.accelerator does not offer itself.

namespace openreg {
namespace {

namespace py = pybind11;
using namespace py::literals;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;

// The form that PyTorch's memory tools read.
py::dict to_dict(const BlockInfo& block, size_t address) {
  const auto* const state = block.allocated ? "active_allocated"
                            : block.active  ? "active_pending_free"
                                            : "inactive";
  return py::dict(
      "address"_a = address,
      "size"_a = block.size,
      "requested_size"_a = block.requested_size,
      "state"_a = state,
      "frames"_a = py::list());
}

py::dict to_dict(const SegmentInfo& segment) {
  py::list blocks;
  size_t address = segment.address;
  for (const auto& block : segment.blocks) {
    blocks.append(to_dict(block, address));
    address += block.size;
  }
  return py::dict(
      "device"_a = static_cast<int>(segment.device),
      "address"_a = segment.address,
      "total_size"_a = segment.total_size,
      "allocated_size"_a = segment.allocated_size,
      "active_size"_a = segment.active_size,
      "requested_size"_a = segment.requested_size,
      "stream"_a = reinterpret_cast<uintptr_t>(segment.stream),
      "segment_type"_a = segment.is_large ? "large" : "small",
      "segment_pool_id"_a = segment.owner_private_pool_id,
      "is_expandable"_a = segment.is_expandable,
      "frames"_a = py::list(),
      "blocks"_a = blocks);
}

py::list snapshot(int64_t device) {
  py::list segments;
  for (const auto& segment : memory_snapshot(to_index(device))) {
    segments.append(to_dict(segment));
  }
  return segments;
}

py::dict to_dict(const at::Stat& stat) {
  return py::dict(
      "current"_a = stat.current,
      "peak"_a = stat.peak,
      "allocated"_a = stat.allocated,
      "freed"_a = stat.freed);
}

py::dict to_dict(const at::DurationStat& stat) {
  return py::dict(
      "total"_a = stat.total,
      "max"_a = stat.max,
      "min"_a = stat.min,
      "count"_a = stat.count);
}

// PyTorch counts pinned memory, and leaves it to each
// backend to say so in Python.
py::dict host_stats() {
  const auto stats = at::getHostAllocator(at::kPrivateUse1)->get_stats();
  return py::dict(
      "active_requests"_a = to_dict(stats.active_requests),
      "active_bytes"_a = to_dict(stats.active_bytes),
      "allocations"_a = to_dict(stats.allocations),
      "allocated_bytes"_a = to_dict(stats.allocated_bytes),
      "host_alloc_time"_a = to_dict(stats.host_alloc_time),
      "host_free_time"_a = to_dict(stats.host_free_time),
      "num_host_alloc"_a = stats.num_host_alloc,
      "num_host_free"_a = stats.num_host_free);
}

}  // namespace

void bind_memory(py::module_& m) {
  using torch::wrap_pybind_function;
  const auto device = py::arg("device");
  m.def("_memory_snapshot", wrap_pybind_function(&snapshot), device);
  m.def(
      "_memory_fraction",
      wrap_pybind_function(
          [](int64_t index) { return memory_fraction(to_index(index)); }),
      device);
  m.def(
      "_set_memory_fraction",
      wrap_pybind_function([](int64_t index, double fraction) {
        set_memory_fraction(to_index(index), fraction);
      }),
      device,
      py::arg("fraction"));
  m.def("_host_memory_stats", wrap_pybind_function(&host_stats));
  m.def("_reset_peak_host_memory_stats", wrap_pybind_function([] {
          at::getHostAllocator(at::kPrivateUse1)->reset_peak_stats();
        }));
  m.def("_reset_accumulated_host_memory_stats", wrap_pybind_function([] {
          at::getHostAllocator(at::kPrivateUse1)->reset_accumulated_stats();
        }));
}

}  // namespace openreg
