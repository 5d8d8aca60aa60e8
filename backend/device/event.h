#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "device/graph.h"
#include "device/openreg.h"

// Moments, and events that name them.

namespace emulator {

struct Device;

// A point in a stream's order, which comes once.
class Moment {
 public:
  Moment() = default;
  // One that has come already.
  explicit Moment(uint64_t time) : done_(true), time_(time) {}

  bool is_done() const {
    return done_.load(std::memory_order_acquire);
  }
  // Of CLOCK_MONOTONIC, in nanoseconds, once done.
  uint64_t time() const {
    return time_;
  }
  void complete();
  void wait();
  // Waits for a few milliseconds, and answers whether it is done.
  bool wait_a_little();
  // In a capture it comes at each launch of the graph, and never here.
  std::shared_ptr<const Branch> branch;

 private:
  std::atomic<bool> done_{false};
  uint64_t time_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

using MomentRef = std::shared_ptr<Moment>;
using EventRef = std::shared_ptr<orEvent>;

// Whether waiting in the order of a stream of `device` still makes sense.
bool should_wait(const Device& device);

}  // namespace emulator

// What an event was last recorded for.
struct orEvent {
  emulator::Device* device = nullptr;
  unsigned flags = 0;
  std::mutex mutex;
  emulator::MomentRef moment;  // NULL before the first record
};
