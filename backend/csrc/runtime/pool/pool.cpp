#include "csrc/runtime/pool/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>
#include <system_error>

#include "csrc/runtime/pool/block.h"

// Blocks are handed out and taken back.

namespace openreg {

constexpr size_t page_bytes = 4096;
constexpr size_t small_segment_bytes = size_t{2} << 20;

static size_t round_up(size_t bytes, size_t step) {
  return (bytes + step - 1) / step * step;
}

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

// [pool-free] Puts a block on its stream's list, unless others use it.
size_t Pool::free(void* address) noexcept {
  Lock lock(lock_);
  Block* const block = live_block(address);
  if (block == nullptr) [[unlikely]] {
    return 0;
  }
  const size_t requested = block->requested;
  remove(block->kind, pool_allocation, 1);
  remove(block->kind, pool_allocated_bytes, block->bytes);
  remove(block->kind, pool_requested_bytes, requested);
  if (block->oversize) [[unlikely]] {
    stats_.oversize_allocations.remove(1);
  }
  if (!block->streams.empty()) [[unlikely]] {
    wait_for_streams(block);
  } else {
    take_back(block);
  }
  return requested;
}
// [/pool-free]

// [pool-merge] Merged with its neighbours, a block serves larger requests.
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

// [pool-find] The steps of a search, each costlier and rarer than the last.
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

// [pool-segment] A segment of the usual size, or else just what is needed.
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

}  // namespace openreg
