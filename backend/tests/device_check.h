#pragma once

#include <cstdio>
#include <cstdlib>

#include "device/openreg.h"

// What the programs of this folder check; the first that fails ends them.

inline void check(bool good, const char* what, int line) {
  if (!good) {
    std::fprintf(
        stderr, "line %d failed: %s (%s)\n", line, what, orGetErrorDetail());
    std::_Exit(1);
  }
}

#define CHECK(condition) check(condition, #condition, __LINE__)
#define SUCCEED(call) check((call) == orSuccess, #call, __LINE__)
