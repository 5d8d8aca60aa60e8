#pragma once

#include <atomic>

#include "device/openreg.h"

// Records of what devices do, for whoever asks.

// Who is told of what the devices do.
struct orSubscriber {
  orSubscriber_t handle;
  orTraceFn fn;
  void* user;
  uint64_t since;  // the last work that was launched before
};

namespace emulator {

// CLOCK_MONOTONIC in nanoseconds.
uint64_t now();

// What traces say about a piece of work.
struct Label {
  orTraceKind kind;
  const char* name;
  size_t bytes = 0;
  uint64_t work = 0;  // its number; 0: it was launched while nobody listened
  int thread = 0;     // that launched it
};

void write_trace(
    orTracePhase phase, const orStream& stream, const Label& label);
void announce_traced(const orStream& stream, Label* label);

// [dev-announce] Without subscribers, tracing costs a launch one load.
inline void announce(const orStream& stream, Label* label) {
  if (std::atomic_ref(orTraceSubscribers).load(std::memory_order_relaxed) != 0)
      [[unlikely]] {
    announce_traced(stream, label);
  }
}
// [/dev-announce]

// Lives as long as the call that launches, or that makes the host wait.
struct Announced {
  Announced(const orStream& place, Label* work) : stream(place), label(work) {
    announce(place, work);
  }
  ~Announced() {
    if (label->work != 0) [[unlikely]] {
      write_trace(orTraceReturn, stream, *label);
    }
  }
  const orStream& stream;
  const Label* const label;
};

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

}  // namespace emulator
