#pragma once

// About the header.

namespace openreg {

// [x-one] A caption.
// Takes `n` and a thing_t.
OPENREG_EXPORT int one(
    int n);
OPENREG_EXPORT extern int two;
// [/x-one]

// Not offered.
int hidden();

// Runs it.
template <typename F>
int run(F&& f) {
  if (f) {
    return f();
  }

  return 0;
}

// A guard.
class Guard {
 public:
  explicit Guard(int n)
      : n_(n) {
    lock(n_);
  }

 private:
  int n_;
};

// Checks.
#define CHECK(call) \
  do {              \
  } while (0)

}  // namespace openreg
