#pragma once

#include <sys/types.h>
#include <cstddef>

// Memory of other processes.

namespace emulator {

// Pages of a device's memory that orIpcOpenMemHandle mapped: which file they
// are of, and how often they were opened. Most often it is another process's.
struct Import {
  dev_t file_system;
  ino_t file;
  size_t offset;
  size_t size;
  int uses;
};

}  // namespace emulator
