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

// What traces say about a piece of work.
struct Label {
  orTraceKind kind;
  const char* name;
  size_t bytes = 0;
  uint64_t work = 0;  // its number; 0: it was launched while nobody listened
  int thread = 0;     // that launched it
};

// Work that is queued; whoever destroys it, releases it.
struct Work {
  Label label;
  orKernelFn kernel;
  orHostFn host;  // instead of a kernel
  Arguments args;
};

// A turn that somebody listens to, until it ends.
struct TracedTurn {
  Label label{};
  int depth = 0;
  std::unique_ptr<TracedTurn> outer;
};

// A point in a stream's order, which comes once.
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
  int depth = 0;  // of turns in turns, the holder's own
  std::unique_ptr<openreg::TracedTurn> traced;  // the innermost, as well
  std::mutex mutex;                             // guards all below
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

// Who is told of what the devices do.
struct orSubscriber {
  orSubscriber_t handle;
  orTraceFn fn;
  void* user;
};

namespace openreg {

// Keeps a stream alive that another thread destroys. For a default stream,
// which lives forever, it counts nothing.
using StreamRef = std::shared_ptr<orStream>;
using EventRef = std::shared_ptr<orEvent>;

// A handle is a number that is never used twice.
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

// Why a device has failed. Sentences are kept, since another thread may be
// reading one when it is replaced.
struct Failure {
  std::atomic<const char*> sentence{nullptr};  // NULL: it has not
  std::mutex mutex;                            // guards all below
  std::deque<std::string> sentences;
  std::mutex reset_mutex;
};

// What a thread is doing. It is read at every launch, so it lies where no call
// is needed to find it; that room is small.
struct ThreadState {
  uint64_t number = 0;           // given at its first turn
  const char* inside = nullptr;  // the device's own work that it runs
  int device = 0;                // the current one
  bool has_complained = false;   // a kernel that runs here, with a sentence
  int system_number = 0;         // given when it is first traced
};

extern constinit thread_local ThreadState this_thread
    __attribute__((tls_model("initial-exec")));

uint64_t next_thread_number();
void settle(orStream& stream);
void resume(orStream& stream);

inline uint64_t number_thread() {
  if (this_thread.number == 0) {
    this_thread.number = next_thread_number();
  }
  return this_thread.number;
}

inline bool holds(const orStream& stream) {
  return stream.holder.load(std::memory_order_relaxed) == this_thread.number;
}

// [dev-turn-take] An idle stream is taken by one compare-and-swap.
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

// orErrorNotPermitted inside the device's own work.
orError_t check_outside(const char* call);

inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -1;

// Removes a stream that is destroyed and has nothing more to do.
void forget_if_done(Machine* machine, const orStream& stream);

// All streams of a device, those that are being destroyed included.
std::vector<StreamRef> streams_of(Machine* machine, Device* device);

// Waits for all work of a device, but for what this thread holds back itself.
void wait_for_device(Machine* machine, Device* device);

extern std::atomic<Launch> launch_mode;

// Leaves work to the stream's worker. May throw.
orError_t queue(const StreamRef& stream, Work&& work);

// Runs work on a stream's worker, or drops it where the device has failed.
void run_queued(orStream& stream, const Work& work);

// Starts the worker of a stream whose mutex is held. May throw.
void start_worker(const StreamRef& stream);
// Whether the process is ending: nothing is queued any more.
bool is_ending();

// Whether waiting in the order of a stream of `device` still makes sense.
bool should_wait(const Device& device);

inline bool prefers_caller(const orStream& stream) {
  const Launch mode = launch_mode.load(std::memory_order_relaxed);
  return mode == Launch::kBlocking ||
         (mode == Launch::kAuto && stream.number == 0);
}

// [dev-claim] The launch mode decides who runs a piece of work.
// `must` leaves no choice: it waits for its turn, as all does in `blocking`.
enum class Claim { kHere, kLater, kFailed };

inline Claim claim(orStream& stream, bool must) {
  must =
      must || launch_mode.load(std::memory_order_relaxed) == Launch::kBlocking;
  if (must || prefers_caller(stream) ? take_turn(stream) : join_turn(stream))
      [[likely]] {
    return Claim::kHere;
  }
  if (!must) {
    return Claim::kLater;
  }
  return begin_turn(stream) == orSuccess ? Claim::kHere : Claim::kFailed;
}
// [/dev-claim]

void write_trace(
    orTracePhase phase, const orStream& stream, const Label& label);
void announce_traced(const orStream& stream, Label* label);

// [dev-announce] While nobody listens, a launch pays one load for it.
inline void announce(const orStream& stream, Label* label) {
  if (std::atomic_ref(orTraceSubscribers).load(std::memory_order_relaxed) != 0)
      [[unlikely]] {
    announce_traced(stream, label);
  }
}
// [/dev-announce]

// A kernel that fails at the call is its caller's business alone.
orError_t report_kernel(
    const orStream& stream, const char* name, orError_t answer);

template <typename Body>
orError_t run(const orStream& stream, const Label& label, Body&& body) {
  if (label.work != 0) [[unlikely]] {
    write_trace(orTraceStart, stream, label);
  }
  const orError_t answer = body();
  if (label.work != 0) [[unlikely]] {
    write_trace(orTraceEnd, stream, label);
  }
  return answer;
}

// [dev-run-or-queue] Work runs here in its turn, or is packed up for later.
// What is packed has the label with what was announced.
template <typename Body, typename Pack>
orError_t launch(
    const StreamRef& stream,
    Label& label,
    bool must,
    Body&& body,
    Pack&& pack) {
  announce(*stream, &label);
  const Claim claimed = claim(*stream, must);
  if (claimed == Claim::kHere) [[likely]] {
    const orError_t answer = run(*stream, label, body);
    end_turn(*stream);
    return answer == orSuccess ? orSuccess
                               : report_kernel(*stream, label.name, answer);
  }
  if (claimed == Claim::kFailed) {
    return orPeekAtLastError();
  }
  return queue(stream, pack());
}
// [/dev-run-or-queue]

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
