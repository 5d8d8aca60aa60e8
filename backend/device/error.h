#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <string>

#include "device/openreg.h"

// What went wrong: of a call, for its thread; of a device, for all.

namespace emulator {

struct Device;

// Records this thread's last error and its sentence, and returns the error.
__attribute__((format(printf, 2, 3))) orError_t
fail(orError_t error, const char* format, ...);

// Calls that may run out of memory say so.
template <typename Call>
orError_t guarded(const char* name, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return fail(orErrorMemoryAllocation, "%s: %s", name, error.what());
  }
}

// Why a device has failed. Sentences are kept, since another thread may be
// reading one when it is replaced.
struct Failure {
  std::atomic<const char*> sentence{nullptr};  // NULL: it has not
  std::mutex mutex;                            // guards all below
  std::deque<std::string> sentences;
  std::mutex reset_mutex;
};

// Makes a device fail, unless it has already.
void set_failure(Device* device, const char* sentence);

// orErrorDeviceFailed where queued work has failed.
orError_t report_failure(const Device& device, const char* sentence);

}  // namespace emulator
