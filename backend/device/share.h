#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>

// Memory that is a part of a file: a device's own, or another process's.

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

// Makes pages of a file what kernels find behind device addresses.
bool map_pages(uintptr_t base, size_t bytes, int fd, size_t offset);

// Keeps addresses from forked children and core dumps.
bool keep_private(uintptr_t start, size_t bytes);

}  // namespace emulator
