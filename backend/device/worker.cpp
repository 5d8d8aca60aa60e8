#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device/device.h"
#include "device/launch.h"
#include "device/worker.h"

// The thread that runs a stream's queued work, and how it all ends.

namespace emulator {

namespace {

std::atomic<bool> ending{false};

// How long a worker looks for work before it sleeps: about 3 microseconds,
// since waking it costs more and another thread may want the core.
constexpr int kSpins = 60;
constexpr std::chrono::seconds kLastKernel{10};

using CpuMask = std::array<cpu_set_t, 8>;  // as many as Linux can have

// A worker may use every CPU that the process started with.
// A new thread inherits the CPUs of the one that makes it, which OpenMP may
// have bound to a single one, and that before this library was loaded.
CpuMask process_cpus() {
  CpuMask mask;
  std::memset(mask.data(), 0xff, sizeof(mask));
  for (const char* name :
       {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) != nullptr) {
      return mask;  // the kernel leaves out what the process may not use
    }
  }
  sched_getaffinity(0, sizeof(mask), mask.data());
  return mask;
}

const CpuMask worker_cpus = process_cpus();

// What a worker is before its first work.
void prepare(const orStream& stream) {
  char name[16];  // the most that a thread's name can have
  std::snprintf(
      name,
      sizeof(name),
      "openreg-%d-%llu",
      stream.device->index,
      static_cast<unsigned long long>(stream.number));
  pthread_setname_np(pthread_self(), name);
  sched_setaffinity(0, sizeof(worker_cpus), worker_cpus.data());
  // On Linux a thread has a nice value of its own.
  const int own = getpriority(PRIO_PROCESS, 0);
  setpriority(PRIO_PROCESS, 0, own + stream.priority - kGreatestPriority);
}

// Signals are for the host's threads, but for those that a kernel causes.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
};

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

// NULL when there will be no more. Returns with the mutex held, as it came.
Work* await_work(orStream& stream, std::unique_lock<std::mutex>& lock) {
  if (stream.queue.empty()) {
    lock.unlock();
    for (int spin = 0; spin < kSpins && is_idle(stream); ++spin) {
      pause();
    }
    lock.lock();
  }
  Work* next = nullptr;
  stream.changed.wait(lock, [&] {
    next = ending ? nullptr : next_in_turn<Work>(stream);
    return next != nullptr || ending || (stream.destroyed && is_idle(stream));
  });
  return next;
}

// [dev-serve] A worker's life: take the front, run it, count it as done.
void serve(const StreamRef& ref) {
  orStream& stream = *ref;
  prepare(stream);
  this_thread.inside = "a release function";  // or work, when it runs some
  std::unique_lock lock(stream.mutex);
  while (Work* const next = await_work(stream, lock)) {
    {
      const Work work = std::move(*next);
      stream.queue.pop_front();
      stream.state.fetch_or(kBusy);
      stream.is_serving = true;
      lock.unlock();
      run_queued(stream, work);
    }  // the arguments are released before anyone is told
    lock.lock();
    stream.is_serving = false;
    stream.state.fetch_sub(kBusy | 1);
    settle(stream);
    stream.changed.notify_all();
  }
  stream.has_worker = false;
}
// [/dev-serve]

// [dev-drain] At exit no new work begins, and running work may finish.
// Arguments of dropped work are left alone: their owners may be gone.
void drop_queue(orStream& stream) {
  const std::lock_guard lock(stream.mutex);
  stream.state.fetch_sub(stream.queue.size());
  for (Piece& piece : stream.queue) {
    if (auto* const work = std::get_if<Work>(&piece)) {
      work->args.leak();
    } else if (auto* const moment = std::get_if<MomentRef>(&piece)) {
      (*moment)->complete();
    } else {
      std::get<Turn*>(piece)->dropped = true;
    }
  }
  stream.queue.clear();
  stream.changed.notify_all();
}

void drain() {
  Machine* const machine = ready_machine;
  if (machine == nullptr || this_thread.inside != nullptr) {
    return;  // a forked child, or exit() called by a kernel
  }
  ending = true;
  launch_mode = Launch::kBlocking;
  std::vector<StreamRef> streams;
  for (Device& device : machine->devices) {
    for (StreamRef& stream : streams_of(&device)) {
      drop_queue(*stream);
      streams.push_back(std::move(stream));
    }
  }
  for (const StreamRef& stream : streams) {
    std::unique_lock lock(stream->mutex);
    stream->changed.wait_for(
        lock, kLastKernel, [&] { return !stream->is_serving; });
  }
}
// [/dev-drain]

}  // namespace

bool is_ending() {
  return ending.load(std::memory_order_relaxed);
}

void start_worker(const StreamRef& stream) {
  [[maybe_unused]] static const int registered = std::atexit(drain);
  const SignalsBlocked blocked;
  std::thread([stream] {
    serve(stream);
    if (ready_machine != nullptr) {
      forget_if_done(*stream);
    }
  }).detach();
  stream->has_worker = true;
}

}  // namespace emulator
