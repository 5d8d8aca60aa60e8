#include "csrc/runtime/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace openreg {
namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t unit_bytes = 512;  // every block begins and ends at one
constexpr size_t small_segment_bytes = size_t{2} << 20;
constexpr size_t small_block_bytes = size_t{1} << 20;
constexpr size_t quick_slots = 1024;

size_t round_up(size_t bytes, size_t step) {
  return (bytes + step - 1) / step * step;
}

// Makes a device current for a while.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    orGetDevice(&previous_);
    orSetDevice(device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    orSetDevice(previous_);
  }

 private:
  int previous_ = 0;
};

// An error that is dealt with here is not one that others should see.
orError_t answered(orError_t error) {
  if (error != orSuccess) {
    orGetLastError();
  }
  return error;
}

// Whether nothing is pending, but for a turn of this thread's own.
bool is_at_rest(orStream_t stream) {
  return answered(orStreamQuery(stream)) == orSuccess;
}

}  // namespace

// [pool-block] A part of a segment, and its neighbours.
struct Pool::Block {
  enum State : uint8_t {
    live,     // the program's
    waiting,  // given back, but other streams still use it
    quick,    // free, and kept as it is for the next request of its size
    idle,     // free, and joined with its free neighbours
  };
  char* address;
  size_t bytes;
  Arena* arena;  // of the stream whose order makes reuse safe
  Kind kind;     // of its segment
  Block* previous = nullptr;
  Block* next = nullptr;
  Block* below = nullptr;  // in its quick list
  State state = idle;
  int events = 0;                     // that it waits for
  size_t requested = 0;               // bytes, while it is live or waiting
  int64_t freed_at = 0;               // by the pool's clock, while it is free
  bool oversize = false;              // counted as one, while it is live
  std::vector<orStream_t> streams{};  // others that use it
};
// [/pool-block]

// [pool-arena] What is free belongs to a stream.
struct Pool::Arena {
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const {
      return std::pair(a->bytes, a->address) < std::pair(b->bytes, b->address);
    }
    bool operator()(const Block* a, size_t bytes) const {
      return a->bytes < bytes;
    }
  };
  orStream_t stream;
  // Each a list of blocks of one size, the last one freed on top.
  std::array<Block*, quick_slots> quick{};
  std::set<Block*, BySize> idle[3];  // of each kind, [small] and [large]

  // Sizes below 512 KiB have slots of their own, the others share.
  Block*& quick_list(size_t bytes) {
    const size_t units = bytes / unit_bytes;
    return quick[(units ^ units / quick_slots) % quick_slots];
  }
};
// [/pool-arena]

Pool::Pool(int device, size_t capacity, Aside aside)
    : device_(device), capacity_(capacity), aside_(aside), limit_(capacity) {}

// Pages of the table are there once they are written, as the device's are.
orError_t Pool::map_table() {
  orAddressSpace space{};
  if (const auto error = orGetAddressSpace(&space)) {
    return error;
  }
  const size_t bytes = capacity_ / unit_bytes * sizeof(Block*);
  constexpr int protection = PROT_READ | PROT_WRITE;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const table = mmap(nullptr, bytes, protection, flags, -1, 0);
  if (table == MAP_FAILED) {
    throw std::system_error(
        errno,
        std::generic_category(),
        "cannot map " + std::to_string(bytes) + " bytes for the table of " +
            "device " + std::to_string(device_) + "'s blocks; raise ulimit " +
            "-v, or set OPENREG_DEVICE_MEMORY to fewer bytes");
  }
  begin_ = space.device_base + device_ * capacity_;
  table_ = static_cast<Block**>(table);
  return orSuccess;
}

inline Pool::Kind Pool::kind_of(size_t bytes) {
  return bytes <= small_block_bytes ? small : large;
}

// Of all blocks only the peak is kept; the rest is a sum.
inline int64_t Pool::current(PoolMeasure measure) const {
  return stats_.counts[small][measure].current() +
         stats_.counts[large][measure].current();
}

inline void Pool::add(Kind kind, PoolMeasure measure, size_t amount) {
  stats_.counts[kind][measure].add(amount);
  stats_.counts[all][measure].raise_peak(current(measure));
}

inline void Pool::remove(Kind kind, PoolMeasure measure, size_t amount) {
  stats_.counts[kind][measure].remove(amount);
}

// A free block that is a whole segment could be given back; any other is
// counted, because it could not.
inline void Pool::add_free(const Block& block) {
  if (block.previous != nullptr || block.next != nullptr) {
    add(block.kind, pool_inactive_split, 1);
    add(block.kind, pool_inactive_split_bytes, block.bytes);
  }
}

inline void Pool::remove_free(const Block& block) {
  if (block.previous != nullptr || block.next != nullptr) {
    remove(block.kind, pool_inactive_split, 1);
    remove(block.kind, pool_inactive_split_bytes, block.bytes);
  }
}

// [pool-block-at] From an address to its block.
inline Pool::Block*& Pool::block_at(const void* address) {
  return table_[(reinterpret_cast<uintptr_t>(address) - begin_) / unit_bytes];
}

inline Pool::Block* Pool::live_block(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) - begin_ >= capacity_) {
    return nullptr;
  }
  Block* const block = block_at(address);
  const bool found = block != nullptr && block->address == address &&
                     block->state == Block::live;
  return found ? block : nullptr;
}
// [/pool-block-at]

inline Pool::Arena& Pool::arena_of(orStream_t stream) {
  if (last_arena_ == nullptr || last_arena_->stream != stream) [[unlikely]] {
    auto& arena = arenas_[stream];
    if (arena == nullptr) {
      arena = std::make_unique<Arena>();
      arena->stream = stream;
    }
    last_arena_ = arena.get();
  }
  return *last_arena_;
}

// [pool-round] Sizes are rounded, so that similar ones can share a block.
inline size_t Pool::round(size_t bytes) const {
  if (options_.rounds_to_divisions) [[unlikely]] {
    const size_t floor = std::bit_floor(bytes);
    const size_t divisions = options_.divisions[std::bit_width(bytes)];
    if (divisions > 1 && floor / divisions > unit_bytes) {
      return round_up(bytes, floor / divisions);
    }
  }
  return round_up(bytes, unit_bytes);
}

// Small blocks share segments of 2 MiB, large ones up to half of 20 MiB share
// segments of 20 MiB, and each larger one has its own.
size_t Pool::segment_bytes(size_t bytes) const {
  if (kind_of(bytes) == small) {
    return small_segment_bytes;
  }
  return bytes < options_.large_segment_bytes / 2
             ? options_.large_segment_bytes
             : round_up(bytes, small_segment_bytes);
}
// [/pool-round]

// [pool-allocate] The last block of this size that was freed, if there is one.
orError_t Pool::allocate(void** address, size_t bytes, orStream_t stream) {
  Lock lock(lock_);
  if (bytes > capacity_) [[unlikely]] {  // and maybe too large to be rounded
    ++stats_.ooms;
    return orErrorMemoryAllocation;
  }
  if (!waiting_.empty()) [[unlikely]] {
    collect_waiting();
  }
  const size_t rounded = round(bytes);
  Arena& arena = arena_of(stream);
  Block*& top = arena.quick_list(rounded);
  Block* block = top;
  if (block != nullptr && block->bytes == rounded) [[likely]] {
    top = block->below;
    remove_free(*block);
  } else if (const auto error = find(lock, arena, rounded, &block)) {
    return error;
  }
  block->state = Block::live;
  block->requested = bytes;
  add(block->kind, pool_allocation, 1);
  add(block->kind, pool_allocated_bytes, block->bytes);
  add(block->kind, pool_requested_bytes, bytes);
  if (!waiting_.empty()) [[unlikely]] {
    count_active_peaks();
  }
  block->oversize = block->bytes >= options_.max_split_bytes;
  if (block->oversize) [[unlikely]] {
    stats_.oversize_allocations.add(1);
  }
  ++clock_;
  *address = block->address;
  return orSuccess;
}
// [/pool-allocate]

// [pool-free] Back onto the list of its stream, unless others use it still.
size_t Pool::free(void* address) noexcept {
  Lock lock(lock_);
  Block* const block = live_block(address);
  if (block == nullptr) [[unlikely]] {
    return 0;
  }
  const size_t bytes = block->bytes;
  remove(block->kind, pool_allocation, 1);
  remove(block->kind, pool_allocated_bytes, bytes);
  remove(block->kind, pool_requested_bytes, block->requested);
  if (block->oversize) [[unlikely]] {
    stats_.oversize_allocations.remove(1);
  }
  if (!block->streams.empty()) [[unlikely]] {
    wait_for_streams(block);
  } else {
    take_back(block);
  }
  return bytes;
}
// [/pool-free]

// [pool-take-back] Free, but not joined: it may be wanted again at once.
inline void Pool::take_back(Block* block) {
  block->freed_at = clock_;
  if (block->bytes >= options_.max_split_bytes) [[unlikely]] {
    merge(block);
    return;
  }
  Block*& top = block->arena->quick_list(block->bytes);
  if (top != nullptr && top->bytes != block->bytes) [[unlikely]] {
    merge_list(top);  // Another size had the slot.
  }
  block->state = Block::quick;
  block->below = std::exchange(top, block);
  add_free(*block);
}
// [/pool-take-back]

// [pool-merge] Joined with its neighbours, a block can serve larger requests.
void Pool::merge(Block* block) {
  block->state = Block::idle;
  if (Block* const next = block->next; next && next->state == Block::idle) {
    erase_free(next);
    absorb(block, next);
  }
  Block* const previous = block->previous;
  if (previous && previous->state == Block::idle) {
    erase_free(previous);
    absorb(previous, block);
    block = previous;
  }
  insert_free(block);
}

void Pool::absorb(Block* left, Block* right) {
  left->bytes += right->bytes;
  left->freed_at = std::max(left->freed_at, right->freed_at);
  left->next = right->next;
  if (left->next != nullptr) {
    left->next->previous = left;
  }
  block_at(right->address) = nullptr;
  delete right;
}
// [/pool-merge]

void Pool::merge_list(Block*& top) {
  for (Block* block = std::exchange(top, nullptr); block != nullptr;) {
    Block* const below = block->below;
    remove_free(*block);
    merge(block);
    block = below;
  }
}

void Pool::merge_quick(Arena& arena) {
  for (Block*& top : arena.quick) {
    merge_list(top);
  }
}

void Pool::insert_free(Block* block) {
  block->arena->idle[block->kind].insert(block);
  add_free(*block);
}

void Pool::erase_free(Block* block) {
  block->arena->idle[block->kind].erase(block);
  remove_free(*block);
}

// [pool-find] Each step costs more than the one before, and is rarer.
orError_t Pool::find(Lock& lock, Arena& arena, size_t bytes, Block** block) {
  if ((*block = best_fit(arena, bytes)) != nullptr) {
    return orSuccess;
  }
  merge_quick(arena);
  if ((*block = best_fit(arena, bytes)) != nullptr) {
    return orSuccess;
  }
  collect_garbage(lock);
  orError_t error = add_segment(arena, bytes, block);
  if (error == orErrorMemoryAllocation) {
    ++stats_.alloc_retries;
    release(lock, SIZE_MAX);
    // What other streams held back may have come free meanwhile.
    if ((*block = best_fit(arena, bytes)) != nullptr) {
      return orSuccess;
    }
    error = add_segment(arena, bytes, block);
    stats_.ooms += error == orErrorMemoryAllocation;
  }
  return error;
}
// [/pool-find]

// [pool-best-fit] The smallest idle block that is large enough.
Pool::Block* Pool::best_fit(Arena& arena, size_t bytes) {
  auto& idle = arena.idle[kind_of(bytes)];
  const auto found = idle.lower_bound(bytes);
  if (found == idle.end() || !may_serve(**found, bytes)) {
    return nullptr;
  }
  Block* const block = *found;
  erase_free(block);
  split(block, bytes);
  return block;
}

void Pool::split(Block* block, size_t bytes) {
  if (block->bytes == bytes || block->bytes >= options_.max_split_bytes) {
    return;
  }
  auto* const rest = new Block{
      block->address + bytes, block->bytes - bytes, block->arena, block->kind};
  rest->freed_at = block->freed_at;
  rest->previous = block;
  rest->next = std::exchange(block->next, rest);
  if (rest->next != nullptr) {
    rest->next->previous = rest;
  }
  block->bytes = bytes;
  block_at(rest->address) = rest;
  insert_free(rest);
}
// [/pool-best-fit]

// A block that is never split is kept for requests of about its size.
bool Pool::may_serve(const Block& block, size_t bytes) const {
  if (block.bytes < options_.max_split_bytes) {
    return true;
  }
  return bytes >= options_.max_split_bytes &&
         block.bytes - bytes < options_.max_non_split_rounding_bytes;
}

// [pool-segment] A segment of the usual size, or of the size that is left.
orError_t Pool::add_segment(Arena& arena, size_t bytes, Block** block) {
  orError_t error = table_ == nullptr ? map_table() : orSuccess;
  if (error != orSuccess) {
    return error;
  }
  error = orErrorMemoryAllocation;  // unless one of the sizes can be had
  for (const size_t size :
       {segment_bytes(bytes), round_up(bytes, page_bytes)}) {
    void* base = nullptr;
    if (size > limit_ ||
        current(pool_reserved_bytes) > static_cast<int64_t>(limit_ - size)) {
      continue;
    }
    {
      const OnDevice here(device_);
      error = orMalloc(&base, size);
    }
    if (error == orErrorMemoryAllocation) {
      answered(error);
      continue;
    }
    if (error != orSuccess) {
      return error;
    }
    *block = new Block{static_cast<char*>(base), size, &arena, kind_of(bytes)};
    block_at(base) = segments_[(*block)->address] = *block;
    ++stats_.device_allocs;
    add((*block)->kind, pool_segment, 1);
    add((*block)->kind, pool_reserved_bytes, size);
    if (size >= options_.max_split_bytes) {
      stats_.oversize_segments.add(1);
    }
    split(*block, bytes);
    return orSuccess;
  }
  return error;
}
// [/pool-segment]

// [pool-record-stream] Its own stream needs no note, and another only one.
bool Pool::record_stream(void* address, orStream_t stream) {
  Lock lock(lock_);
  Block* const block = live_block(address);
  if (block == nullptr) {
    return false;
  }
  auto& streams = block->streams;
  if (stream != block->arena->stream &&
      std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
  return true;
}
// [/pool-record-stream]

// [pool-wait] A block waits for what its other streams have been given so far.
void Pool::wait_for_streams(Block* block) {
  block->state = Block::waiting;
  add(block->kind, pool_waiting, 1);
  add(block->kind, pool_waiting_bytes, block->bytes);
  for (const auto stream : std::exchange(block->streams, {})) {
    ++block->events;
    waiting_[stream].push_back({record_event(stream), block});
  }
}

void Pool::collect_waiting() {
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    auto& [stream, queue] = *entry;
    while (!queue.empty()) {
      const auto [event, block] = queue.front();
      const auto answer = event ? orEventQuery(event) : orStreamQuery(stream);
      if (answer == orErrorNotReady) {
        break;  // nor are those behind it
      }
      answered(answer);  // a device that has failed uses nothing any more
      queue.pop_front();
      if (event != nullptr) {
        spare_events_[stream].push_back(event);
      }
      if (--block->events == 0) {
        remove(block->kind, pool_waiting, 1);
        remove(block->kind, pool_waiting_bytes, block->bytes);
        take_back(block);
      }
    }
    entry = queue.empty() ? waiting_.erase(entry) : std::next(entry);
  }
}
// [/pool-wait]

// [pool-record-event] NULL when the device cannot: a free must not fail.
orEvent_t Pool::record_event(orStream_t stream) {
  auto& spare = spare_events_[stream];
  orEvent_t event = nullptr;
  if (!spare.empty()) {
    event = spare.back();
    spare.pop_back();
  } else {
    int device = device_;
    answered(orStreamGetDevice(stream, &device));
    const OnDevice there(device);
    if (answered(orEventCreate(&event, orEventDisableTiming)) != orSuccess) {
      return nullptr;
    }
  }
  if (answered(orEventRecord(event, stream)) != orSuccess) {
    spare.push_back(event);
    return nullptr;
  }
  return event;
}
// [/pool-record-event]

void Pool::release_cached() {
  Lock lock(lock_);
  release(lock, SIZE_MAX);
}

// With a threshold, the cache shrinks before the device is full.
void Pool::collect_garbage(Lock& lock) {
  const double most = options_.garbage_threshold * limit_;
  const double excess = current(pool_reserved_bytes) - most;
  if (most > 0 && excess > 0) {
    release(lock, static_cast<size_t>(excess));
  }
}

// [pool-release] Segments in which nothing is active go back to the device.
// Their last work may still run, so it is waited for, and without the lock:
// what it waits for may need another thread, which may need the pool.
void Pool::release(Lock& lock, size_t enough) {
  lock.unlock();
  if (orThreadHasTurn()) {
    release_in_turn(lock, enough);
    return;
  }
  aside_([&] {
    const std::lock_guard alone(release_mutex_);
    lock.lock();
    release_alone(lock, enough, /*may_wait=*/true);
    lock.unlock();
  });
  lock.lock();
}
// [/pool-release]

// [pool-release-in-turn] Without a wait, only what is at rest can go.
// Those that this thread would wait for may be waiting for its turn to end.
void Pool::release_in_turn(Lock& lock, size_t enough) {
  const std::unique_lock alone(release_mutex_, std::try_to_lock);
  lock.lock();
  if (alone) {
    release_alone(lock, enough, /*may_wait=*/false);
  }
}
// [/pool-release-in-turn]

// [pool-release-alone] Detached first, so that nobody gets a block meanwhile.
void Pool::release_alone(Lock& lock, size_t enough, bool may_wait) {
  if (!waiting_.empty()) {
    if (may_wait) {
      ++stats_.sync_all_streams;
      wait_for_users(lock);
    }
    collect_waiting();
  }
  const auto unused = detach_unused(enough);
  const bool done = !unused.empty() && may_wait && wait_for_device(lock);
  std::vector<char*> segments;
  for (Block* const block : unused) {
    if (done || (!may_wait && is_at_rest(block->arena->stream))) {
      // Forgotten first: once it is free, another thread may get the address.
      segments.push_back(block->address);
      forget_segment(block);
    } else {
      insert_free(block);
    }
  }
  lock.unlock();
  std::for_each(segments.begin(), segments.end(), &orFree);
  lock.lock();
}
// [/pool-release-alone]

// [pool-users] The streams that freed blocks wait for, of whatever device.
void Pool::wait_for_users(Lock& lock) {
  std::vector<orStream_t> streams;
  for (const auto& [stream, queue] : waiting_) {
    streams.push_back(stream);
  }
  lock.unlock();
  for (const auto stream : streams) {
    answered(orStreamSynchronize(stream));
  }
  lock.lock();
}
// [/pool-users]

bool Pool::wait_for_device(Lock& lock) {
  lock.unlock();
  orError_t error = orSuccess;
  {
    const OnDevice here(device_);
    error = orDeviceSynchronize();
  }
  lock.lock();
  return answered(error) == orSuccess;
}

// Takes unused segments out of circulation, those first that have been unused
// for longest, until they make `enough` bytes.
std::vector<Pool::Block*> Pool::detach_unused(size_t enough) {
  std::vector<Block*> unused;
  for (auto& [stream, arena] : arenas_) {
    merge_quick(*arena);
  }
  for (auto& [address, block] : segments_) {
    if (block->state == Block::idle && block->next == nullptr) {
      unused.push_back(block);
    }
  }
  std::stable_sort(unused.begin(), unused.end(), [](auto* a, auto* b) {
    return a->freed_at < b->freed_at;
  });
  size_t bytes = 0;
  size_t count = 0;
  while (count < unused.size() && bytes < enough) {
    bytes += unused[count]->bytes;
    erase_free(unused[count++]);
  }
  unused.resize(count);
  return unused;
}

void Pool::forget_segment(Block* block) {
  remove(block->kind, pool_segment, 1);
  remove(block->kind, pool_reserved_bytes, block->bytes);
  if (block->bytes >= options_.max_split_bytes) {
    stats_.oversize_segments.remove(1);
  }
  ++stats_.device_frees;
  segments_.erase(block->address);
  block_at(block->address) = nullptr;
  delete block;
}

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
    auto& segment = result.emplace_back(
        PoolSegment{
            reinterpret_cast<uintptr_t>(address),
            0,
            first->arena->stream,
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
