#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "device/config.h"
#include "device/error.h"
#include "device/event.h"
#include "device/graph.h"
#include "device/trace.h"

// Streams, what stands in their queues, and whose turn it is.

namespace emulator {

struct Device;
struct Machine;

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
  std::unique_ptr<TracedTurn> outer{};
};

// A thread that waits for its turn; it sits on that thread's stack.
struct Turn {
  bool dropped = false;  // the process is ending
};

// What can stand in a stream's queue. Work needs a worker, a turn its thread,
// and a moment nobody: whoever ends what was before completes it.
using Piece = std::variant<Work, MomentRef, Turn*>;

// Set in `state` while somebody runs work of the stream or holds its turn.
inline constexpr uint64_t kBusy = uint64_t{1} << 63;
// Set there while the stream is captured, so that it is never found idle.
inline constexpr uint64_t kCapturing = uint64_t{1} << 62;
inline constexpr uint64_t kNobody = ~uint64_t{0};

}  // namespace emulator

// [dev-stream] A stream is an atomic word, its state, and a queue of work.
struct orStream {
  emulator::Device* device = nullptr;
  orStream_t handle = nullptr;  // NULL for a default stream
  int priority = 0;
  uint64_t number = 0;             // 0 for a default stream
  std::atomic<uint64_t> state{0};  // pieces not yet done, and kBusy
  std::atomic<uint64_t> holder{emulator::kNobody};  // the thread with the turn
  int depth = 0;  // of turns in turns, the holder's own
  std::unique_ptr<emulator::TracedTurn> traced;  // the innermost, as well
  std::mutex mutex;                              // guards all below
  std::condition_variable changed;
  std::deque<emulator::Piece> queue;
  std::unique_ptr<emulator::Branch> branch;  // of the capture that it is in
  bool has_worker = false;
  bool is_serving = false;  // the worker runs something
  std::atomic<bool> destroyed{false};
};
// [/dev-stream]

namespace emulator {

// Keeps a stream alive that another thread destroys. For a default stream,
// which lives forever, it counts nothing.
using StreamRef = std::shared_ptr<orStream>;

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

// What stands at the front of the queue, if its turn has come and it is a T.
// The caller holds the mutex.
template <typename T>
T* next_in_turn(orStream& stream) {
  const bool busy = (stream.state.load() & kBusy) != 0;
  return busy || stream.queue.empty() ? nullptr
                                      : std::get_if<T>(&stream.queue.front());
}

// Whether what this thread launches is kept. A turn that began before the
// capture is no part of it.
inline bool is_capturing(const orStream& stream) {
  return (stream.state.load(std::memory_order_relaxed) & kCapturing) != 0 &&
         !holds(stream);
}

// Waits for this thread's turn. One with a name breaks a capture.
orError_t begin_turn(orStream& stream, const char* name);

// The moment when all work launched on `stream` so far is done. May throw.
MomentRef mark(orStream& stream);

orError_t report_inside(const char* call);

// orErrorNotPermitted inside the device's own work.
inline orError_t check_outside(const char* call) {
  return this_thread.inside == nullptr ? orSuccess : report_inside(call);
}

inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -1;

// Removes a stream that is destroyed and has nothing more to do.
void forget_if_done(const orStream& stream);

// All streams of a device, those that are being destroyed included.
std::vector<StreamRef> streams_of(Device* device);

// Waits for all work of a device, but for what this thread holds back itself.
void wait_for_device(Device* device);

extern std::atomic<Launch> launch_mode;

inline bool prefers_caller(const orStream& stream) {
  const Launch mode = launch_mode.load(std::memory_order_relaxed);
  return mode == Launch::kBlocking ||
         (mode == Launch::kAuto && stream.number == 0);
}

// [dev-claim] The launch mode decides who runs a piece of work.
// What must run here waits for its turn, as all does in `blocking`.
enum class Claim { kHere, kLater };

inline Result<Claim> claim(
    orStream& stream, const char* name, bool must_run_here) {
  const Launch mode = launch_mode.load(std::memory_order_relaxed);
  const bool must = must_run_here || mode == Launch::kBlocking;
  if (must || prefers_caller(stream) ? take_turn(stream) : join_turn(stream))
      [[likely]] {
    return Claim::kHere;
  }
  if (!must || (is_capturing(stream) && !must_run_here)) {
    return Claim::kLater;
  }
  const orError_t error = begin_turn(stream, must_run_here ? name : nullptr);
  return error == orSuccess ? Claim::kHere : Result<Claim>(error);
}
// [/dev-claim]

}  // namespace emulator
