#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "device/openreg.h"

// What went wrong: of a call, for its thread; of a device, for all.

namespace emulator {

struct Device;

// What this thread has been told. It has no place in the library: what glibc
// keeps for variables like `this_thread` is 1.6 kB, for all that a process
// loads, and other libraries need some of it.
struct Texts {
  char detail[768];     // of the last error
  char complaint[400];  // a kernel's about its failure, until it has answered
};
Texts& texts();

// Records this thread's last error and its sentence, and returns the error.
__attribute__((format(printf, 2, 3))) orError_t
fail(orError_t error, const char* format, ...);

// [dev-result] A value, or the error that explains why there is none.
// It is followed like a pointer. A function that takes one passes its error on.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(orError_t error) : error_(error) {}  // as fail() returns it
  Result(T value) : value_(std::move(value)) {}

  explicit operator bool() const {
    return error_ == orSuccess;
  }
  orError_t error() const {
    return error_;
  }
  const T& value() const {
    return value_;
  }
  const T& operator->() const {
    return value_;
  }
  decltype(auto) operator*() const {
    return *value_;
  }

 private:
  T value_{};
  orError_t error_ = orSuccess;
};
// [/dev-result]

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
void set_failure(Device* device, const std::string& sentence);

// orErrorDeviceFailed where queued work has failed.
orError_t report_failure(const Device& device, const char* sentence);

}  // namespace emulator
