#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <utility>

#include "csrc/runtime/pool/pool.h"

// What a pool is made of, for the files that define it.

namespace openreg {

constexpr size_t unit_bytes = 512;  // every block begins and ends at one
constexpr size_t small_block_bytes = size_t{1} << 20;
constexpr size_t quick_slots = 1024;

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
inline orError_t answered(orError_t error) {
  if (error != orSuccess) {
    orGetLastError();
  }
  return error;
}

// [block-part] A part of a segment, and its neighbours.
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
// [/block-part]

// [block-arena] Free blocks belong to a stream.
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
// [/block-arena]

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

// [block-at] Finds the block of an address.
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
// [/block-at]

// [block-take-back] Freed but not merged, since it may be wanted again at once.
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
// [/block-take-back]

}  // namespace openreg
