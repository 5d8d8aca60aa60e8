#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "device/openreg.h"

// The caching pool of one device. What it asks of the device is a segment,
// what it hands out is a block, and a segment is a row of blocks. Nothing of
// PyTorch is needed here, so that the sanitizers can watch it alone.

namespace openreg {

// One number that goes up and down. An allocation writes one sum, a free the
// other, and seldom one of them the peak; the rest is worked out.
struct PoolCount {
  int64_t added = 0;
  int64_t removed = 0;
  int64_t peak = 0;
  int64_t added_before = 0;  // the last reset
  int64_t removed_before = 0;

  int64_t current() const {
    return added - removed;
  }
  void add(size_t amount) {
    added += static_cast<int64_t>(amount);
    raise_peak(current());
  }
  void raise_peak(int64_t value) {
    if (value > peak) [[unlikely]] {
      peak = value;
    }
  }
  void remove(size_t amount) {
    removed += static_cast<int64_t>(amount);
  }
  // Adds all of another but its peak.
  void include(const PoolCount& other) {
    added += other.added;
    removed += other.removed;
    added_before += other.added_before;
    removed_before += other.removed_before;
  }
};

// [pool-stats] The counters of a pool.
enum PoolMeasure : size_t {
  pool_allocation,  // blocks that the program holds, and
  pool_allocated_bytes,
  pool_requested_bytes,  // what it asked for, before rounding
  pool_waiting,          // blocks that are freed, but streams still use
  pool_waiting_bytes,
  pool_segment,  // what the device gave
  pool_reserved_bytes,
  pool_inactive_split,  // free blocks in segments that are not free as a whole
  pool_inactive_split_bytes,
  pool_active,  // allocated or waiting: worked out from the others
  pool_active_bytes,
  pool_measures,
};

struct PoolStats {
  // Of [0] all blocks, [1] the small and [2] the large ones.
  std::array<std::array<PoolCount, pool_measures>, 3> counts;
  PoolCount oversize_allocations;  // blocks that are too large to be split
  PoolCount oversize_segments;
  int64_t alloc_retries = 0;     // the device was full, and the cache emptied
  int64_t ooms = 0;              // and even that did not help
  int64_t sync_all_streams = 0;  // waits for blocks that streams still used
  int64_t device_allocs = 0;
  int64_t device_frees = 0;

  template <typename Change>
  void for_each(Change&& change) {
    for (auto& kind : counts) {
      std::for_each(kind.begin(), kind.end(), change);
    }
    change(oversize_allocations);
    change(oversize_segments);
  }
};
// [/pool-stats]

// [pool-lock] A lock that is held for a short while.
// To give it back costs no atomic exchange, as that of std::mutex does, and
// each allocation and each free pays for it. Nothing slow happens under it.
class PoolLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) {
      while (taken_.load(std::memory_order_relaxed)) {
        std::this_thread::yield();
      }
    }
  }
  void unlock() {
    taken_.store(false, std::memory_order_release);
  }

 private:
  std::atomic<bool> taken_{false};
};
// [/pool-lock]

// What can be set from outside; the defaults are PyTorch's.
struct PoolOptions {
  size_t max_split_bytes = SIZE_MAX;  // blocks so large are never split
  size_t max_non_split_rounding_bytes = size_t{20} << 20;
  size_t large_segment_bytes = size_t{20} << 20;
  double garbage_threshold = 0;  // of the limit; 0 is never
  // A size of i bits is rounded to one of so many steps from 2**(i-1) to 2**i;
  // 0 is to 512 bytes.
  std::array<size_t, 65> divisions{};
  bool rounds_to_divisions = false;
};

// What a segment looks like from outside.
struct PoolSegment {
  struct Block {
    uintptr_t address;
    size_t bytes;
    size_t requested;
    bool allocated;  // the program holds it
    bool active;     // or a stream does
  };
  uintptr_t address;
  size_t bytes;
  orStream_t stream;  // NULL where it is a private pool's
  uint64_t pool;      // of which this is the number, or 0
  bool large;
  std::vector<Block> blocks;
};

// A pool is never destroyed: tensors may be freed after everything else.
class Pool {
 public:
  // Calls what it is given, and may let go of what must not be held while a
  // thread waits: an interpreter's lock.
  using Aside = void (*)(const std::function<void()>& wait);

  // `capacity` is what the device has, in bytes.
  Pool(int device, size_t capacity, Aside aside);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() = delete;

  // At least `bytes` > 0 of memory for work of `stream`, which must be a
  // handle of its own, not NULL, or what private_arena gave for a graph.
  // orErrorMemoryAllocation when there is no room even without the cache; else
  // an error of orMalloc. The first allocation throws std::system_error when
  // there are no addresses for the pool's table.
  orError_t allocate(void** address, size_t bytes, orStream_t stream);

  // Takes a block back and returns the bytes that were asked for; 0, and
  // nothing done, for an address that is not the start of a live block.
  size_t free(void* address) noexcept;

  // `stream` uses the live block too: once freed, it waits for that stream.
  // False for an address that is not the start of a live block.
  bool record_stream(void* address, orStream_t stream);

  // What stands for a stream where memory is for graphs that share the pool
  // `number`: the device runs them one after another, so what one of their
  // nodes has freed another may have.
  static orStream_t private_arena(uint64_t number);

  // While it is kept, its free memory is not given back: a graph may use it.
  void keep_arena(uint64_t number);
  void release_arena(uint64_t number);

  // How many captures are under way: while there is one, no pool waits for a
  // whole device, which would break it.
  static inline std::atomic<int> captures{0};

  // The number of the private pool that a live block is of, else 0.
  uint64_t private_pool_of(const void* address);

  // Gives the device back every segment in which nothing is active, after the
  // work of the device is done.
  void release_cached();

  // More than `bytes` is not asked of the device.
  void set_limit(size_t bytes);
  size_t limit();
  void set_options(const PoolOptions& options);

  PoolStats stats();
  void reset_peaks();
  void reset_accumulated();
  // In the order of addresses.
  std::vector<PoolSegment> snapshot();

 private:
  enum Kind : size_t { all, small, large };
  struct Block;
  struct Arena;
  // An event that must be done before the block can be used again; NULL, when
  // the event could not be recorded, stands for all work of the stream.
  struct Waiting {
    orEvent_t event;
    Block* block;
  };
  using Lock = std::unique_lock<PoolLock>;

  static uint64_t private_number(orStream_t stream);
  static Kind kind_of(size_t bytes);
  size_t round(size_t bytes) const;
  size_t segment_bytes(size_t bytes) const;
  bool may_serve(const Block& block, size_t bytes) const;
  Block*& block_at(const void* address);
  Block* live_block(const void* address);
  Arena& arena_of(orStream_t stream);

  orError_t find(Lock& lock, Arena& arena, size_t bytes, Block** block);
  Block* best_fit(Arena& arena, size_t bytes);
  orError_t map_table();
  orError_t add_segment(Arena& arena, size_t bytes, Block** block);
  void split(Block* block, size_t bytes);
  void count_active_peaks();

  void take_back(Block* block);
  void merge(Block* block);
  void merge_list(Block*& top);
  void merge_quick(Arena& arena);
  void absorb(Block* left, Block* right);
  void insert_free(Block* block);
  void erase_free(Block* block);

  void wait_for_streams(Block* block);
  orEvent_t record_event(orStream_t stream);
  void collect_waiting();
  void collect_garbage(Lock& lock);
  void release(Lock& lock, size_t enough);
  void release_at_rest(Lock& lock, size_t enough);
  void release_alone(Lock& lock, size_t enough, bool may_wait);
  void wait_for_users(Lock& lock);
  bool wait_for_device(Lock& lock);
  std::vector<Block*> detach_unused(size_t enough);
  void forget_segment(Block* block);

  void add_free(const Block& block);
  void remove_free(const Block& block);
  void add(Kind kind, PoolMeasure measure, size_t amount);
  void remove(Kind kind, PoolMeasure measure, size_t amount);
  int64_t current(PoolMeasure measure) const;

  const int device_;
  const size_t capacity_;
  const Aside aside_;
  std::mutex release_mutex_;  // one thread releases; taken before lock_
  PoolLock lock_;             // for everything below
  Block** table_ = nullptr;   // for each unit of the device, who begins there
  uintptr_t begin_ = uintptr_t{1} << 63;  // at first far from any address
  std::map<char*, Block*> segments_;      // begin -> first block
  std::unordered_map<orStream_t, std::unique_ptr<Arena>> arenas_;
  Arena* last_arena_ = nullptr;
  std::unordered_map<orStream_t, int> kept_arenas_;  // how many graphs
  std::map<orStream_t, std::deque<Waiting>> waiting_;
  std::map<orStream_t, std::vector<orEvent_t>> spare_events_;
  PoolOptions options_;
  size_t limit_;
  PoolStats stats_;
  int64_t clock_ = 0;  // counts what was handed out
};

}  // namespace openreg
