#pragma once

#include <cstddef>
#include <string>

// The environment, read once.

namespace emulator {

enum class Launch { kAuto, kAsync, kBlocking };

inline constexpr int kMaxDevices = 16;

// What the environment may say, and what holds when it does not.
struct Config {
  int device_count = 2;               // OPENREG_DEVICE_COUNT
  size_t capacity = size_t{4} << 30;  // OPENREG_DEVICE_MEMORY, whole pages
  Launch launch = Launch::kAuto;      // OPENREG_LAUNCH
  bool explain_faults = true;         // OPENREG_SEGV_HANDLER
  size_t page = 0;                    // of the system
  std::string problem;                // empty unless a value is malformed
};

Config read_config();

}  // namespace emulator
