#include "csrc/runtime/allocator.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/StorageImpl.h>

#include "csrc/runtime/address.h"

// The pool keeps what the program frees and hands it out again: a tensor of a
// size seen before costs a list operation instead of a call to the device.
// Blocks of one size class lie side by side in a segment, which is what the
// pool asks of the device. A free block belongs to the stream that used it
// last, because only that stream's order makes its reuse safe.

namespace openreg {
namespace {

using c10::CachingAllocator::StatType;
using Stats = c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t page_bytes = 4096;
constexpr size_t unit_bytes = 512;
constexpr size_t segment_bytes = size_t{2} << 20;
constexpr size_t small_block_bytes = size_t{1} << 20;
constexpr size_t class_count = 4 * 53;  // 2**63 bytes are in the last one
constexpr size_t block_is_free = SIZE_MAX;

// [allocator-size-class] Four size classes for each doubling.
// At most a fifth of a block is lost to rounding.
struct SizeClass {
  size_t index;
  size_t block_bytes;
};

SizeClass size_class(size_t bytes) {
  const size_t units = (bytes + unit_bytes - 1) / unit_bytes;
  if (units <= 8) {
    return {units - 1, units * unit_bytes};
  }
  const int step_bits = std::bit_width(units - 1) - 3;
  const size_t steps = (units + (size_t{1} << step_bits) - 1) >> step_bits;
  return {
      static_cast<size_t>(step_bits) * 4 + steps - 1,
      (steps << step_bits) * unit_bytes};
}
// [/allocator-size-class]

size_t round_to_page(size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

// Blocks of one size that lie side by side. `requested` has an entry a block.
struct Segment {
  char* base;
  size_t bytes;
  SizeClass size;
  c10::StreamId stream;
  size_t live_blocks = 0;
  std::vector<size_t> requested;

  size_t block_of(const char* address) const {
    return (address - base) / size.block_bytes;
  }
};

using FreeLists = std::array<std::vector<char*>, class_count>;

// In a forked child the pools are the parent's, and none of the child's
// business; unless the parent never used them.
std::atomic<bool> pools_in_use{false};
std::atomic<bool> pools_are_the_parents{false};

// The memory of one device.
class Pool {
 public:
  explicit Pool(c10::DeviceIndex device)
      : device_(device),
        segment_of_page_(
            static_cast<Segment**>(std::calloc(
                address_space.device_capacity / page_bytes + 1,
                sizeof(Segment*)))) {
    // calloc, because the table of a large device is mostly never touched.
    TORCH_CHECK(segment_of_page_ != nullptr, "openreg: no host memory left");
  }

  char* allocate(size_t bytes, c10::StreamId stream);
  // Returns the block's size in bytes.
  size_t free(char* address) noexcept;
  void release_unused() {
    std::lock_guard lock(mutex_);
    release_unused_locked();
  }

  template <typename Use>
  auto with_stats(Use&& use) {
    std::lock_guard lock(mutex_);
    return use(stats_);
  }

 private:
  Segment*& segment_at(const char* address) {
    const auto offset =
        reinterpret_cast<uintptr_t>(address) - address_space.device_base;
    return segment_of_page_
        [(offset - device_ * address_space.device_capacity) / page_bytes];
  }
  void grow(SizeClass size, c10::StreamId stream, size_t bytes);
  void* reserve(SizeClass size, size_t& blocks);
  [[noreturn]] void raise_out_of_memory(size_t bytes);
  void release_unused_locked();
  void count_block(const Segment& segment, size_t requested, bool allocated);

  const c10::DeviceIndex device_;
  std::mutex mutex_;
  Segment** segment_of_page_;
  std::map<char*, std::unique_ptr<Segment>> segments_;
  std::map<c10::StreamId, FreeLists> free_blocks_;
  Stats stats_;
};

void Pool::count_block(
    const Segment& segment, size_t requested, bool allocated) {
  const auto pool = segment.size.block_bytes <= small_block_bytes
                        ? StatType::SMALL_POOL
                        : StatType::LARGE_POOL;
  const auto count = [&](c10::CachingAllocator::StatArray& stat, size_t n) {
    for (const auto type : {StatType::AGGREGATE, pool}) {
      auto& entry = stat[static_cast<size_t>(type)];
      allocated ? entry.increase(n) : entry.decrease(n);
    }
  };
  count(stats_.allocation, 1);
  count(stats_.active, 1);
  count(stats_.allocated_bytes, segment.size.block_bytes);
  count(stats_.active_bytes, segment.size.block_bytes);
  count(stats_.requested_bytes, requested);
}

// [allocator-allocate] A block from the free list, else from a new segment.
char* Pool::allocate(size_t bytes, c10::StreamId stream) {
  const SizeClass size = size_class(bytes);
  std::lock_guard lock(mutex_);
  auto& free_list = free_blocks_[stream][size.index];
  if (free_list.empty()) {
    grow(size, stream, bytes);
  }
  char* const address = free_list.back();
  free_list.pop_back();
  Segment& segment = *segment_at(address);
  segment.requested[segment.block_of(address)] = bytes;
  ++segment.live_blocks;
  count_block(segment, bytes, /*allocated=*/true);
  return address;
}
// [/allocator-allocate]

// [allocator-free] Back to the list of the stream that used the block.
size_t Pool::free(char* address) noexcept {
  std::lock_guard lock(mutex_);
  Segment& segment = *segment_at(address);
  size_t& requested = segment.requested[segment.block_of(address)];
  count_block(segment, requested, /*allocated=*/false);
  requested = block_is_free;
  --segment.live_blocks;
  free_blocks_[segment.stream][segment.size.index].push_back(address);
  return segment.size.block_bytes;
}
// [/allocator-free]

// Memory for `blocks` blocks, or for one when so much is not to be had;
// NULL when not even that is.
void* Pool::reserve(SizeClass size, size_t& blocks) {
  void* base = nullptr;
  const auto previous = exchange_device(device_);
  orError_t error = orMalloc(&base, round_to_page(blocks * size.block_bytes));
  if (error == orErrorMemoryAllocation && blocks > 1) {
    blocks = 1;
    error = orMalloc(&base, round_to_page(size.block_bytes));
  }
  set_device(previous);
  if (error == orErrorMemoryAllocation) {
    orGetLastError();  // Answered here, so nobody else should see it.
    return nullptr;
  }
  if (error != orSuccess) {
    raise_error(error, "orMalloc");
  }
  return base;
}

// [allocator-grow] A full device first gives back what the pool only keeps.
void Pool::grow(SizeClass size, c10::StreamId stream, size_t bytes) {
  size_t blocks = size.block_bytes <= small_block_bytes
                      ? segment_bytes / size.block_bytes
                      : 1;
  void* base = reserve(size, blocks);
  if (base == nullptr) {
    ++stats_.num_alloc_retries;
    release_unused_locked();
    base = reserve(size, blocks);
  }
  if (base == nullptr) {
    raise_out_of_memory(bytes);
  }
  pools_in_use = true;
  ++stats_.num_device_alloc;
  auto segment = std::make_unique<Segment>(Segment{
      static_cast<char*>(base),
      round_to_page(blocks * size.block_bytes),
      size,
      stream,
      0,
      std::vector<size_t>(blocks, block_is_free)});
  stats_.segment[0].increase(1);
  stats_.reserved_bytes[0].increase(segment->bytes);
  auto& free_list = free_blocks_[stream][size.index];
  for (size_t block = blocks; block-- > 0;) {
    char* const address = segment->base + block * size.block_bytes;
    segment_at(address) = segment.get();
    free_list.push_back(address);
  }
  segments_.emplace(segment->base, std::move(segment));
}
// [/allocator-grow]

// [allocator-release] Only a segment without any live block can go.
void Pool::release_unused_locked() {
  for (auto& [stream, lists] : free_blocks_) {
    for (auto& list : lists) {
      std::erase_if(list, [this](const char* address) {
        return segment_at(address)->live_blocks == 0;
      });
    }
  }
  std::erase_if(segments_, [this](const auto& entry) {
    const Segment& segment = *entry.second;
    if (segment.live_blocks != 0) {
      return false;
    }
    stats_.segment[0].decrease(1);
    stats_.reserved_bytes[0].decrease(segment.bytes);
    ++stats_.num_device_free;
    OPENREG_CHECK(orFree(segment.base));
    return true;
  });
}
// [/allocator-release]

void Pool::raise_out_of_memory(size_t bytes) {
  ++stats_.num_ooms;
  const size_t allocated = stats_.allocated_bytes[0].current;
  const size_t reserved = stats_.reserved_bytes[0].current;
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(bytes),
      allocated,
      reserved,
      c10::Device(c10::kPrivateUse1, device_));
  size_t free = 0;
  size_t total = 0;
  const auto previous = exchange_device(device_);
  OPENREG_CHECK(orMemGetInfo(&free, &total));
  set_device(previous);
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "openreg out of memory. Tried to allocate ",
      bytes,
      " bytes on device ",
      static_cast<int>(device_),
      ", which has a capacity of ",
      total,
      " bytes, of which ",
      free,
      " are free. This process has allocated ",
      allocated,
      " and reserved ",
      reserved,
      " bytes. Free tensors, use smaller ones or raise "
      "OPENREG_DEVICE_MEMORY.");
}

Pool& pool_of(c10::DeviceIndex device) {
  static auto* const pools = [] {
    auto* all = new std::vector<std::unique_ptr<Pool>>;
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      all->push_back(std::make_unique<Pool>(index));
    }
    return all;
  }();
  return *(*pools)[device];
}

void report_usage(void* address, int64_t bytes, c10::DeviceIndex device) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) {
    return;
  }
  const auto [allocated, reserved] =
      pool_of(device).with_stats([](const Stats& stats) {
        return std::pair(
            stats.allocated_bytes[0].current, stats.reserved_bytes[0].current);
      });
  c10::reportMemoryUsageToProfiler(
      address,
      bytes,
      allocated,
      reserved,
      c10::Device(c10::kPrivateUse1, device));
}

// What PyTorch sees of the pools.
struct PoolAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    return pool_data_ptr(current_device(), bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &pool_free;
  }
  void copy_data(void* dst, const void* src, size_t count) const override {
    OPENREG_CHECK(orMemcpy(dst, src, count, orMemcpyDeviceToDevice));
  }
  bool initialized() override {
    return device_count() > 0;
  }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      pool_of(index).release_unused();
    }
  }
  // One stream a device cannot race with itself.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  Stats getDeviceStats(c10::DeviceIndex device) override {
    check_device(device);
    return pool_of(device).with_stats([](const Stats& s) { return s; });
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    for_each_stat(device, [](auto& stat) { stat.reset_accumulated(); });
    pool_of(device).with_stats([](Stats& stats) {
      stats.num_alloc_retries = stats.num_ooms = 0;
      stats.num_device_alloc = stats.num_device_free = 0;
    });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    for_each_stat(device, [](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto previous = exchange_device(device);
    size_t free = 0;
    size_t total = 0;
    OPENREG_CHECK(orMemGetInfo(&free, &total));
    set_device(previous);
    return {free, total};
  }

 private:
  template <typename Change>
  static void for_each_stat(c10::DeviceIndex device, Change&& change) {
    check_device(device);
    pool_of(device).with_stats([&](Stats& stats) {
      for (auto* array :
           {&stats.allocation,
            &stats.segment,
            &stats.active,
            &stats.allocated_bytes,
            &stats.reserved_bytes,
            &stats.active_bytes,
            &stats.requested_bytes}) {
        for (auto& stat : *array) {
          change(stat);
        }
      }
    });
  }
};

// [allocator-register] PyTorch finds the allocator through its device type.
const bool registered = [] {
  pthread_atfork(
      nullptr, nullptr, [] { pools_are_the_parents = pools_in_use.load(); });
  c10::SetAllocator(c10::kPrivateUse1, device_allocator());
  return true;
}();
// [/allocator-register]

}  // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* const allocator = new PoolAllocator;
  return allocator;
}

void* pool_allocate(c10::DeviceIndex device, size_t bytes) {
  check_device(device);
  if (C10_UNLIKELY(pools_are_the_parents)) {
    // The device words the refusal.
    OPENREG_CHECK(orDeviceSynchronize());
  }
  if (bytes == 0) {
    return nullptr;
  }
  char* const address = pool_of(device).allocate(bytes, /*stream=*/0);
  report_usage(address, static_cast<int64_t>(bytes), device);
  return address;
}

void pool_free(void* address) noexcept {
  if (address == nullptr || pools_are_the_parents) {
    return;
  }
  const auto device = device_of(address);
  const auto bytes = pool_of(device).free(static_cast<char*>(address));
  report_usage(address, -static_cast<int64_t>(bytes), device);
}

c10::DataPtr pool_data_ptr(c10::DeviceIndex device, size_t bytes) {
  void* const address = pool_allocate(device, bytes);
  return {address, address, &pool_free, c10::Device(c10::kPrivateUse1, device)};
}

}  // namespace openreg
