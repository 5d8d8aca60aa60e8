#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

// Every kernel reaches the device through one of two functions: `launch` runs
// it on the calling thread when its turn has come, `enqueue` leaves it to the
// stream.

namespace openreg {

// [launch-turn] While this object lives, its thread has the stream to itself.
class Turn {
 public:
  Turn(c10::DeviceIndex device, const char* name)
      : stream_(current_stream(device)) {
    OPENREG_CHECK_WAIT(orStreamBeginTurn(stream_, name));
  }
  ~Turn() {
    orStreamEndTurn(stream_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const orStream_t stream_;
};

// Runs `kernel` on this thread, in the order of the current stream of `device`.
// Raises what it raises; results may be read when it returns. `name` is the
// operator's, as in "aten::add.Tensor", and must outlive the call.
template <typename Kernel>
void launch(c10::DeviceIndex device, const char* name, Kernel&& kernel) {
  const Turn turn(device, name);
  std::forward<Kernel>(kernel)();
}
// [/launch-turn]

// Whether work for `device` would run on this thread without waiting. Kernels
// choose their form by it: there is no use in queueing then.
inline bool runs_inline(c10::DeviceIndex device) {
  return orStreamRunsInline(current_stream(device)) != 0;
}

// Work that a stream owns until it has run.
struct QueuedWork {
  virtual ~QueuedWork() = default;
  virtual void run() = 0;
  int threads = 1;  // that it may use, as many as the thread that launched it
};

// Hands `work` to the current stream of `device`.
OPENREG_EXPORT void enqueue_work(
    c10::DeviceIndex device,
    const char* name,
    std::unique_ptr<QueuedWork> work);

// [launch-enqueue] Queues `kernel`, which owns all that it needs.
// No Storage, generator or Python object may be among that: a stream's order
// alone keeps memory alive. Raises what `kernel` raises if it runs at once; an
// error that comes later makes the device fail.
template <typename Kernel>
void enqueue(c10::DeviceIndex device, const char* name, Kernel&& kernel) {
  struct Work final : QueuedWork {
    explicit Work(Kernel&& k) : kernel(std::move(k)) {}
    void run() override {
      kernel();
    }
    Kernel kernel;
  };
  enqueue_work(device, name, std::make_unique<Work>(std::move(kernel)));
}
// [/launch-enqueue]

}  // namespace openreg
