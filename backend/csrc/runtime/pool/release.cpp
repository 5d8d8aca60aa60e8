#include <algorithm>
#include <utility>

#include "csrc/runtime/pool/block.h"

// Blocks that other streams use wait for them, and segments that nobody uses
// go back to the device.

namespace openreg {

// Whether nothing is pending, but for a turn of this thread's own. Of a stream
// that is captured nobody may ask.
static orError_t query(orStream_t stream) {
  return orStreamGetCapture(stream) != 0 ? orErrorNotReady
                                         : answered(orStreamQuery(stream));
}

// An event that could not be recorded, or only in a capture, stands for all
// work of its stream.
static orError_t query(orEvent_t event, orStream_t stream) {
  const auto answer = event == nullptr ? orErrorStreamCaptureUnsupported
                                       : answered(orEventQuery(event));
  return answer == orErrorStreamCaptureUnsupported ? query(stream) : answer;
}

// [release-private] A graph's memory has an odd number in place of a stream.
// Handles of streams are even, since they are addresses.
orStream_t Pool::private_arena(uint64_t number) {
  return reinterpret_cast<orStream_t>(number << 1 | 1);
}

uint64_t Pool::private_number(orStream_t stream) {
  const auto number = reinterpret_cast<uint64_t>(stream);
  return (number & 1) != 0 ? number >> 1 : 0;
}

void Pool::keep_arena(uint64_t number) {
  const Lock lock(lock_);
  ++kept_arenas_[private_arena(number)];
}

void Pool::release_arena(uint64_t number) {
  const Lock lock(lock_);
  const auto kept = kept_arenas_.find(private_arena(number));
  if (kept != kept_arenas_.end() && --kept->second == 0) {
    kept_arenas_.erase(kept);
  }
}

uint64_t Pool::private_pool_of(const void* address) {
  const Lock lock(lock_);
  const Block* const block = live_block(address);
  return block == nullptr ? 0 : private_number(block->arena->stream);
}
// [/release-private]

// [release-record-stream] Another stream is noted once, its own never.
bool Pool::record_stream(void* address, orStream_t stream) {
  Lock lock(lock_);
  Block* const block = live_block(address);
  if (block == nullptr) {
    return false;
  }
  auto& streams = block->streams;
  if (stream != block->arena->stream && orStreamGetCapture(stream) == 0 &&
      std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
  return true;
}
// [/release-record-stream]

// [release-wait] A block waits for the work that its other streams have now.
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
      // A device that has failed uses nothing any more.
      if (query(event, stream) == orErrorNotReady) {
        break;  // nor are those behind it
      }
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
// [/release-wait]

// [release-record-event] NULL if recording fails: a free must not fail.
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
// [/release-record-event]

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

// [release-segments] Segments in which nothing is active go back to the device.
// Their last work may still run, so it is waited for, and without the lock:
// what it waits for may need another thread, which may need the pool.
void Pool::release(Lock& lock, size_t enough) {
  lock.unlock();
  if (captures != 0 || orThreadHasTurn()) {
    release_at_rest(lock, enough);
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
// [/release-segments]

// [release-in-turn] Releases only what is idle, without waiting.
// The work to wait for may itself be waiting for this thread's turn to end, or
// for the launch of a graph.
void Pool::release_at_rest(Lock& lock, size_t enough) {
  const std::unique_lock alone(release_mutex_, std::try_to_lock);
  lock.lock();
  if (alone) {
    release_alone(lock, enough, /*may_wait=*/false);
  }
}
// [/release-in-turn]

// [release-alone] Segments are detached first, so nobody gets a block there.
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
    if (done || (!may_wait && query(block->arena->stream) == orSuccess)) {
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
// [/release-alone]

// [release-users] The streams that freed blocks wait for, on any device.
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
// [/release-users]

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
    if (block->state == Block::idle && block->next == nullptr &&
        !kept_arenas_.contains(block->arena->stream)) {
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

}  // namespace openreg
