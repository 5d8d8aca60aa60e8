#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "device/openreg.h"

// Work, the streams that order it, and the moments at which it is done.

namespace openreg {

struct Device;
struct Machine;

enum class Launch { kAuto, kAsync, kBlocking };

// Records this thread's last error and its sentence, and returns the error.
__attribute__((format(printf, 2, 3))) orError_t
fail(orError_t error, const char* format, ...);

// [dev-arguments] A launch owns its arguments, whichever way it ends.
class Arguments {
 public:
  Arguments(void* args, orReleaseFn release) : args_(args), release_(release) {}
  Arguments(Arguments&& other)
      : args_(other.args_), release_(std::exchange(other.release_, nullptr)) {}
  ~Arguments() {
    if (release_ != nullptr) {
      release_(args_);
    }
  }

  void* get() const {
    return args_;
  }
  // At the process's end, whose owner may be gone before.
  void leak() {
    release_ = nullptr;
  }

 private:
  void* args_;
  orReleaseFn release_;
};
// [/dev-arguments]

// [dev-work] What a launch hands over; whoever destroys it, releases it.
struct Work {
  orTraceKind kind;
  const char* name;  // NULL: the stream's own business, not to be traced
  orKernelFn kernel;
  orHostFn host;  // instead of a kernel
  size_t bytes;
  Arguments args;
  uint64_t id = 0;  // in the trace, when there is one
};
// [/dev-work]

// [dev-moment] A point in a stream's order, which comes once.
class Moment {
 public:
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

 private:
  std::atomic<bool> done_{false};
  uint64_t time_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};
// [/dev-moment]

using MomentRef = std::shared_ptr<Moment>;

// A thread that waits for its turn; it sits on that thread's stack.
struct Turn {
  bool dropped = false;  // the process is ending
};

// What can stand in a stream's queue. Work needs a worker, a turn its thread,
// and a moment nobody: whoever ends what was before completes it.
using Piece = std::variant<Work, MomentRef, Turn*>;

// Set in `state` while somebody runs work of the stream or holds its turn.
inline constexpr uint64_t kBusy = uint64_t{1} << 63;
inline constexpr uint64_t kNobody = ~uint64_t{0};

}  // namespace openreg

// [dev-stream] A stream is a word that says whether it is idle, and a queue.
struct orStream {
  openreg::Device* device = nullptr;
  orStream_t handle = nullptr;
  int priority = 0;
  uint64_t number = 0;             // 0 for a default stream
  std::atomic<uint64_t> state{0};  // pieces not yet done, and kBusy
  std::atomic<uint64_t> holder{openreg::kNobody};  // the thread with the turn
  int depth = 0;     // of turns in turns, the holder's own
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::deque<openreg::Piece> queue;
  bool has_worker = false;
  bool is_serving = false;  // the worker runs something
  std::atomic<bool> destroyed{false};
};
// [/dev-stream]

// What an event was last recorded for.
struct orEvent {
  openreg::Device* device = nullptr;
  unsigned flags = 0;
  std::mutex mutex;
  openreg::MomentRef moment;  // NULL before the first record
};

namespace openreg {

// Keeps a stream alive that another thread destroys. For a default stream,
// which lives forever, it counts nothing.
using StreamRef = std::shared_ptr<orStream>;
using EventRef = std::shared_ptr<orEvent>;

// [dev-handles] A handle is a number that is never used twice.
// It is looked up and not followed, so a stale or foreign one is refused.
template <typename T>
class Handles {
 public:
  explicit Handles(uintptr_t base) : next_(base) {}

  template <typename Fill>
  T* add(Fill&& fill) {
    const std::unique_lock lock(mutex_);
    const auto handle = reinterpret_cast<T*>(next_ + 16);
    auto object = std::make_shared<T>();
    fill(object.get(), handle);
    table_.emplace(handle, std::move(object));
    next_ += 16;
    return handle;
  }
  std::shared_ptr<T> find(const T* handle) const {
    const std::shared_lock lock(mutex_);
    const auto entry = table_.find(handle);
    return entry == table_.end() ? nullptr : entry->second;
  }
  // The object outlives its handle where somebody still uses it.
  std::shared_ptr<T> remove(const T* handle) {
    const std::unique_lock lock(mutex_);
    const auto entry = table_.extract(handle);
    return entry.empty() ? nullptr : std::move(entry.mapped());
  }
  template <typename Visit>
  void each(Visit&& visit) const {
    const std::shared_lock lock(mutex_);
    for (const auto& entry : table_) {
      visit(entry.second);
    }
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const T*, std::shared_ptr<T>> table_;
  uintptr_t next_;
};
// [/dev-handles]

// Why a device has failed. Sentences are kept, since another thread may be
// reading one when it is replaced.
struct Failure {
  std::atomic<const char*> sentence{nullptr};  // NULL: it has not
  std::mutex mutex;                            // guards all below
  std::deque<std::string> sentences;
  std::mutex reset_mutex;
};

// What a thread is doing.
struct ThreadState {
  uint64_t number = 0;           // given at its first turn
  const char* inside = nullptr;  // the device's own work that it runs
  char kernel_error[400] = "";
};

extern constinit thread_local ThreadState this_thread;

// [dev-turn-take] An idle stream is taken by one compare-and-swap.
uint64_t next_thread_number();

inline uint64_t number_thread() {
  if (this_thread.number == 0) {
    this_thread.number = next_thread_number();
  }
  return this_thread.number;
}

inline bool holds(const orStream& stream) {
  return stream.holder.load(std::memory_order_relaxed) == this_thread.number;
}

// A turn inside one's own turn is free.
inline bool join_turn(orStream& stream) {
  if (!holds(stream)) {
    return false;
  }
  ++stream.depth;
  return true;
}

inline bool take_turn(orStream& stream) {
  uint64_t idle = 0;
  if (!stream.state.compare_exchange_strong(
          idle, kBusy | 1, std::memory_order_acquire)) {
    return join_turn(stream);
  }
  stream.holder.store(number_thread(), std::memory_order_relaxed);
  stream.depth = 1;
  return true;
}

void settle(orStream& stream);
void resume(orStream& stream);

// The last one out wakes whoever waits.
inline void end_turn(orStream& stream) {
  if (--stream.depth == 0) {
    stream.holder.store(kNobody, std::memory_order_relaxed);
    if (stream.state.fetch_sub(kBusy | 1, std::memory_order_acq_rel) !=
        (kBusy | 1)) {
      resume(stream);
    }
  }
}
// [/dev-turn-take]

inline bool is_idle(const orStream& stream) {
  return stream.state.load(std::memory_order_acquire) == 0;
}

// Waits for this thread's turn.
orError_t begin_turn(orStream& stream);

// The moment when all work launched on `stream` so far is done. May throw.
MomentRef mark(orStream& stream);

// A stream by its handle, NULL being the current device's default. Empty after
// fail() when there is none.
StreamRef find_stream(Machine* machine, orStream_t handle);

// As above, for a call that launches or waits: it must not come from inside
// the device's own work, and the device must not have failed.
StreamRef enter_stream(Machine* machine, const char* call, orStream_t handle);

// orErrorNotPermitted inside the device's own work.
orError_t check_outside(const char* call);

inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -1;

// Removes a stream that is destroyed and has nothing more to do.
void forget_if_done(Machine* machine, const orStream& stream);

// Whether `stream` lets its caller run work when it is idle.
bool prefers_caller(const orStream& stream);

// All streams of a device, those that are being destroyed included.
std::vector<StreamRef> streams_of(Machine* machine, Device* device);

// Waits for all work of a device, but for what this thread holds back itself.
void wait_for_device(Machine* machine, Device* device);

extern std::atomic<Launch> launch_mode;

// Work is run by the thread that launches it, in its turn, or queued. Whether
// it is here; `must` leaves no choice.
orError_t claim(orStream& stream, bool must, bool* here);
orError_t run_in_turn(orStream& stream, const Work& work);
orError_t queue(const StreamRef& stream, Work&& work);
orError_t launch(const StreamRef& stream, Work&& work);

// Runs work on a stream's worker, or drops it where the device has failed.
void run_queued(orStream& stream, const Work& work);

// Starts the worker of a stream whose mutex is held. May throw.
void start_worker(const StreamRef& stream);
// Whether the process is ending: nothing is queued any more.
bool is_ending();

// Whether waiting in the order of a stream of `device` still makes sense.
bool should_wait(const Device& device);

extern std::atomic<bool> tracing;
void write_trace(orTracePhase phase, const orStream& stream, const Work& work);
uint64_t number_work();

inline void trace(
    orTracePhase phase, const orStream& stream, const Work& work) {
  if (work.id != 0) [[unlikely]] {
    write_trace(phase, stream, work);
  }
}

inline void announce(const orStream& stream, Work* work) {
  if (tracing.load(std::memory_order_relaxed)) [[unlikely]] {
    work->id = number_work();
    trace(orTraceLaunch, stream, *work);
  }
}

// Calls that may run out of memory say so.
template <typename Call>
orError_t guarded(const char* name, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return fail(orErrorMemoryAllocation, "%s: %s", name, error.what());
  }
}

}  // namespace openreg
