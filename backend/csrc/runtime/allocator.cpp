#include "csrc/runtime/allocator.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <vector>

#include <c10/core/AllocatorConfig.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "csrc/graph/capture.h"
#include "csrc/runtime/address.h"
#include "csrc/runtime/host_allocator.h"
#include "csrc/runtime/pool/pool.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

// The pools as PyTorch sees them: one c10::DeviceAllocator for all devices.

namespace openreg {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using Stats = c10::CachingDeviceAllocator::DeviceStats;

// In a forked child the pools are the parent's, and none of the child's
// business; unless the parent never used them.
std::atomic<bool> pools_in_use{false};
std::atomic<bool> pools_are_the_parents{false};

// [allocator-options] Turns PYTORCH_ALLOC_CONF into options of the pool.
PoolOptions current_options() {
  using Config = AcceleratorAllocatorConfig;
  check_allocator_options();
  PoolOptions options;
  options.max_split_bytes = Config::max_split_size();
  options.max_non_split_rounding_bytes = Config::max_non_split_rounding_size();
  options.large_segment_bytes = Config::large_segment_size();
  options.garbage_threshold = Config::garbage_collection_threshold();
  for (size_t bits = 1; bits < options.divisions.size(); ++bits) {
    auto& divisions = options.divisions[bits];
    divisions = Config::roundup_power2_divisions(size_t{1} << (bits - 1));
    options.rounds_to_divisions |= divisions > 1;
  }
  if (Config::use_expandable_segments()) {
    TORCH_WARN_ONCE(
        "openreg: expandable_segments has no effect. A segment keeps its size; "
        "what is unused in it is joined and cut anew.");
  }
  return options;
}
// [/allocator-options]

void aside(const std::function<void()>& wait) {
  without_interpreter_lock(wait);
}

const std::vector<Pool*>& pools() {
  static const auto* const pools = [] {
    auto* all = new std::vector<Pool*>;
    for (int device = 0; device < device_count(); ++device) {
      const size_t capacity = device_properties(device).total_memory;
      all->push_back(new Pool(device, capacity, &aside));
      all->back()->set_options(current_options());
    }
    return all;
  }();
  return *pools;
}

Pool& pool_of(c10::DeviceIndex device) {
  const auto& all = pools();
  if (C10_UNLIKELY(static_cast<size_t>(device) >= all.size())) {
    check_device(device);
  }
  return *all[device];
}

// [allocator-oom] The out-of-memory message, with the numbers users need.
[[noreturn]] void raise_out_of_memory(c10::DeviceIndex device, size_t bytes) {
  const PoolStats stats = pool_of(device).stats();
  const auto& counts = stats.counts[0];
  const auto allocated = counts[pool_allocated_bytes].current();
  const auto reserved = counts[pool_reserved_bytes].current();
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(bytes),
      allocated,
      reserved,
      c10::Device(c10::kPrivateUse1, device));
  const auto [free, total] = device_memory(device);
  const size_t limit = pool_of(device).limit();
  const auto allowed =
      limit < total
          ? c10::str(
                " set_per_process_memory_fraction allows it ", limit, " bytes.")
          : std::string();
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "openreg out of memory. Tried to allocate ",
      bytes,
      " bytes on device ",
      static_cast<int>(device),
      ", which has a capacity of ",
      total,
      " bytes, of which ",
      free,
      " are free. This process has allocated ",
      allocated,
      " and reserved ",
      reserved,
      " bytes.",
      allowed,
      " Free tensors, use smaller ones or raise ",
      limit < total ? "the fraction." : "OPENREG_DEVICE_MEMORY.");
}
// [/allocator-oom]

// [allocator-usage] Reports every allocation and every free to the profiler.
void report_usage(void* address, int64_t bytes, c10::DeviceIndex device) {
  // Whether there is a profiler is the cheaper question.
  using Info = c10::ThreadLocalDebugInfo;
  if (C10_LIKELY(Info::get(c10::DebugInfoKind::PROFILER_STATE) == nullptr) ||
      !c10::memoryProfilingEnabled()) {
    return;
  }
  const PoolStats stats = pool_of(device).stats();
  c10::reportMemoryUsageToProfiler(
      address,
      bytes,
      stats.counts[0][pool_allocated_bytes].current(),
      stats.counts[0][pool_reserved_bytes].current(),
      c10::Device(c10::kPrivateUse1, device));
}
// [/allocator-usage]

// [allocator-counts] The pool's counts under PyTorch's names.
c10::CachingAllocator::Stat to_stat(const PoolCount& count) {
  return {
      count.current(),
      count.peak,
      count.added - count.added_before,
      count.removed - count.removed_before};
}

Stats to_device_stats(const PoolStats& from) {
  Stats to;
  const auto copy = [&](auto& stat, PoolMeasure measure) {
    for (size_t kind = 0; kind < stat.size(); ++kind) {
      stat[kind] = to_stat(from.counts[kind][measure]);
    }
  };
  copy(to.allocation, pool_allocation);
  copy(to.segment, pool_segment);
  copy(to.active, pool_active);
  copy(to.inactive_split, pool_inactive_split);
  copy(to.allocated_bytes, pool_allocated_bytes);
  copy(to.reserved_bytes, pool_reserved_bytes);
  copy(to.active_bytes, pool_active_bytes);
  copy(to.inactive_split_bytes, pool_inactive_split_bytes);
  copy(to.requested_bytes, pool_requested_bytes);
  to.oversize_allocations = to_stat(from.oversize_allocations);
  to.oversize_segments = to_stat(from.oversize_segments);
  to.num_alloc_retries = from.alloc_retries;
  to.num_ooms = from.ooms;
  to.num_sync_all_streams = from.sync_all_streams;
  to.num_device_alloc = from.device_allocs;
  to.num_device_free = from.device_frees;
  to.max_split_size =
      static_cast<int64_t>(AcceleratorAllocatorConfig::max_split_size());
  return to;
}
// [/allocator-counts]

struct PoolAllocator final : c10::DeviceAllocator {
  // [allocator-methods] The methods that PyTorch calls on an allocator.
  c10::DataPtr allocate(size_t bytes) override {
    return device_data_ptr(current_device(), bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &device_free;
  }
  void copy_data(void* dst, const void* src, size_t count) const override {
    if (count == 0) {
      return;
    }
    const orStream_t stream = current_stream(device_of(dst));
    OPENREG_CHECK_WAIT(
        orMemcpyAsync(dst, src, count, orMemcpyDeviceToDevice, stream));
  }
  bool initialized() override {
    return device_count() > 0;
  }
  void emptyCache(c10::MempoolId_t pool) override {
    const bool shared = pool == c10::MempoolId_t{0, 0};
    if (!shared || pools_are_the_parents) {
      return;  // A graph's pool gives back when the graph lets go of it.
    }
    for (Pool* const each : pools()) {
      each->release_cached();
    }
  }
  Stats getDeviceStats(c10::DeviceIndex device) override {
    return to_device_stats(pool_of(device).stats());
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    pool_of(device).reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    pool_of(device).reset_peaks();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return device_memory(device);
  }
  // [/allocator-methods]

  // [allocator-record-stream] Notes that another stream uses a block.
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const orStream_t handle = handle_of(stream);
    const bool ours = data.get() && data.get_deleter() == &device_free;
    if (!ours || pools_are_the_parents) {
      return;  // Nothing, or memory that somebody else frees.
    }
    pool_of(device_of(data.get_context()))
        .record_stream(data.get_context(), handle);
  }
  // [/allocator-record-stream]
};

// [allocator-register] PyTorch finds the allocator through its device type.
const bool registered = [] {
  pthread_atfork(
      nullptr, nullptr, [] { pools_are_the_parents = pools_in_use.load(); });
  // Settings may change at run time. Another backend may listen, too.
  AcceleratorAllocatorConfig::registerDeviceConfigParserHook(
      [other = AcceleratorAllocatorConfig::getConfigParserHook()](
          const std::string& settings) {
        if (other) {
          other(settings);
        }
        for (Pool* const pool : pools()) {
          pool->set_options(current_options());
        }
      },
      {});
  c10::SetAllocator(c10::kPrivateUse1, device_allocator());
  return true;
}();
// [/allocator-register]

}  // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* const allocator = new PoolAllocator;
  return allocator;
}

static void* allocate(c10::DeviceIndex device, size_t bytes, bool in_turn) {
  Pool& pool = pool_of(device);
  if (C10_UNLIKELY(pools_are_the_parents)) {
    // The device words the refusal.
    OPENREG_CHECK(orDeviceSynchronize());
  }
  if (bytes == 0) {
    return nullptr;
  }
  pools_in_use.store(true, std::memory_order_relaxed);
  orStream_t stream = current_stream(device);
  if (const auto capture = capture_of(stream)) {
    stream = Pool::private_arena(capture->pool);
  }
  void* address = nullptr;
  const orError_t error = pool.allocate(&address, bytes, stream);
  if (C10_UNLIKELY(error != orSuccess)) {
    if (error != orErrorMemoryAllocation) {
      raise_error(error, "orMalloc");
    }
    if (in_turn && bytes <= pool.limit()) {
      return nullptr;
    }
    raise_out_of_memory(device, bytes);
  }
  report_usage(address, static_cast<int64_t>(bytes), device);
  return address;
}

void* device_allocate(c10::DeviceIndex device, size_t bytes) {
  return allocate(device, bytes, /*in_turn=*/false);
}

void* device_allocate_in_turn(c10::DeviceIndex device, size_t bytes) {
  return allocate(device, bytes, /*in_turn=*/true);
}

// [allocator-free] The deleter gets the context, which is the address here.
void device_free(void* address) noexcept {
  if (address == nullptr || pools_are_the_parents) {
    return;
  }
  const bool known = is_device_address(address);
  const c10::DeviceIndex device = known ? device_of(address) : 0;
  const size_t bytes = known ? pools()[device]->free(address) : 0;
  if (C10_UNLIKELY(bytes == 0)) {
    // A destructor cannot raise, but a mistake of ours must not pass unseen.
    std::fprintf(
        stderr,
        "openreg: %p was freed, but no tensor's memory begins there (any more)."
        " Nothing was done.\n",
        address);
    return;
  }
  report_usage(address, -static_cast<int64_t>(bytes), device);
}
// [/allocator-free]

// [allocator-data-ptr] An address, what frees it, and the device.
c10::DataPtr device_data_ptr(c10::DeviceIndex device, size_t bytes) {
  void* const address = device_allocate(device, bytes);
  return {
      address, address, &device_free, c10::Device(c10::kPrivateUse1, device)};
}
// [/allocator-data-ptr]

uint64_t private_pool_of(const void* address) {
  return pools()[device_of(address)]->private_pool_of(address);
}

void keep_private_pool(c10::DeviceIndex device, uint64_t number) {
  pool_of(device).keep_arena(number);
}

void release_private_pool(c10::DeviceIndex device, uint64_t number) {
  if (!pools_are_the_parents) {
    pool_of(device).release_arena(number);
  }
}

double memory_fraction(c10::DeviceIndex device) {
  return static_cast<double>(pool_of(device).limit()) /
         static_cast<double>(device_properties(device).total_memory);
}

void set_memory_fraction(c10::DeviceIndex device, double fraction) {
  TORCH_CHECK_VALUE(
      0 <= fraction && fraction <= 1,
      "The fraction of memory must be in [0, 1], but got ",
      fraction,
      ".");
  pool_of(device).set_limit(
      static_cast<size_t>(fraction * device_properties(device).total_memory));
}

// The pool's segments in PyTorch's form.
std::vector<c10::CachingDeviceAllocator::SegmentInfo> memory_snapshot(
    c10::DeviceIndex device) {
  std::vector<c10::CachingDeviceAllocator::SegmentInfo> result;
  for (const auto& from : pool_of(device).snapshot()) {
    auto& segment = result.emplace_back();
    segment.device = device;
    segment.address = from.address;
    segment.total_size = from.bytes;
    segment.stream = from.stream;
    segment.owner_private_pool_id = {from.pool, 0};
    segment.is_large = from.large;
    for (const auto& block : from.blocks) {
      segment.requested_size += block.requested;
      segment.allocated_size += block.allocated ? block.bytes : 0;
      segment.active_size += block.active ? block.bytes : 0;
      auto& info = segment.blocks.emplace_back();
      info.size = block.bytes;
      info.requested_size = block.requested;
      info.allocated = block.allocated;
      info.active = block.active;
    }
  }
  return result;
}

}  // namespace openreg
