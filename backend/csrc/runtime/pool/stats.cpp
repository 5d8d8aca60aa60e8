#include <algorithm>

#include "csrc/runtime/pool/block.h"

// What can be set and asked from outside.

namespace openreg {

void Pool::set_limit(size_t bytes) {
  Lock lock(lock_);
  limit_ = bytes;
}

size_t Pool::limit() {
  Lock lock(lock_);
  return limit_;
}

void Pool::set_options(const PoolOptions& options) {
  Lock lock(lock_);
  options_ = options;
}

// What is active is counted only when somebody asks.
// Its peak can grow at an allocation alone; while nothing waits, it is that of
// the allocations.
void Pool::count_active_peaks() {
  for (const size_t i : {0, 1}) {  // blocks, bytes
    int64_t sum = 0;
    for (const auto kind : {small, large, all}) {
      auto& counts = stats_.counts[kind];
      const auto active = counts[pool_allocation + i].current() +
                          counts[pool_waiting + i].current();
      sum += active;
      counts[pool_active + i].raise_peak(kind == all ? sum : active);
    }
  }
}

PoolStats Pool::stats() {
  Lock lock(lock_);
  PoolStats result = stats_;
  for (const auto kind : {small, large}) {
    for (size_t measure = 0; measure < pool_measures; ++measure) {
      result.counts[all][measure].include(result.counts[kind][measure]);
    }
  }
  for (auto& counts : result.counts) {
    for (const size_t i : {0, 1}) {
      auto& active = counts[pool_active + i];
      active.raise_peak(counts[pool_allocation + i].peak);
      active.include(counts[pool_allocation + i]);
      const auto& waiting = counts[pool_waiting + i];
      active.removed -= waiting.current();
      active.removed_before -= waiting.added_before - waiting.removed_before;
    }
  }
  return result;
}

void Pool::reset_peaks() {
  Lock lock(lock_);
  stats_.for_each([](PoolCount& count) { count.peak = count.current(); });
  for (size_t measure = 0; measure < pool_active; ++measure) {
    stats_.counts[all][measure].peak = current(PoolMeasure(measure));
  }
  count_active_peaks();
}

void Pool::reset_accumulated() {
  Lock lock(lock_);
  stats_.for_each([](PoolCount& count) {
    count.added_before = count.added;
    count.removed_before = count.removed;
  });
  stats_.alloc_retries = stats_.ooms = stats_.sync_all_streams = 0;
  stats_.device_allocs = stats_.device_frees = 0;
}

std::vector<PoolSegment> Pool::snapshot() {
  Lock lock(lock_);
  std::vector<PoolSegment> result;
  for (const auto& [address, first] : segments_) {
    const uint64_t pool = private_number(first->arena->stream);
    auto& segment = result.emplace_back(
        PoolSegment{
            reinterpret_cast<uintptr_t>(address),
            0,
            pool == 0 ? first->arena->stream : nullptr,
            pool,
            first->kind == large,
            {}});
    for (const Block* block = first; block != nullptr; block = block->next) {
      const bool active =
          block->state == Block::live || block->state == Block::waiting;
      segment.bytes += block->bytes;
      segment.blocks.push_back(
          {reinterpret_cast<uintptr_t>(block->address),
           block->bytes,
           active ? block->requested : 0,
           block->state == Block::live,
           active});
    }
  }
  return result;
}

}  // namespace openreg
