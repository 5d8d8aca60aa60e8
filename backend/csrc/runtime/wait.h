#pragma once

#include <utility>

#include "csrc/runtime/device.h"

// Waits of the runtime. It knows no Python, but the thread that waits may hold
// the interpreter's lock, and the work it waits for may need that lock.

namespace openreg {

// [wait-hooks] How a wait releases the interpreter's lock.
// `release` returns what `acquire` needs, or NULL when this thread does not
// hold the lock. Set once, by the bindings.
struct InterpreterLock {
  void* (*release)() = nullptr;
  void (*acquire)(void* state) = nullptr;
};

OPENREG_EXPORT extern InterpreterLock interpreter_lock;
// [/wait-hooks]

// [wait-without] Every call that may wait goes through this.
template <typename Wait>
auto without_interpreter_lock(Wait&& wait) {
  void* const state =
      interpreter_lock.release ? interpreter_lock.release() : nullptr;
  struct Reacquire {
    void* state;
    ~Reacquire() {
      if (state != nullptr) {
        interpreter_lock.acquire(state);
      }
    }
  } const reacquire{state};
  return std::forward<Wait>(wait)();
}
// [/wait-without]

// As OPENREG_CHECK, for a call that may wait.
#define OPENREG_CHECK_WAIT(call)                                     \
  do {                                                               \
    const orError_t error_ =                                         \
        ::openreg::without_interpreter_lock([&] { return (call); }); \
    if (C10_UNLIKELY(error_ != orSuccess)) {                         \
      ::openreg::raise_error(error_, #call);                         \
    }                                                                \
  } while (0)

}  // namespace openreg
