#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>

namespace openreg {

// How a collective ended, told once to whoever may still hear it.
// A host that asks after the end gets the error as an exception. A stream that
// waits already cannot, so then the kernel raises it, and the device fails.
class Outcome {
 public:
  // [outcome-told] Kernels report how they end, and streams rely on it.
  void expect(size_t kernels) {
    pending_ = kernels;
  }

  // From each kernel, at each of its runs. Raises `error` if a stream relies
  // on the result.
  void finish(const std::exception_ptr& error) {
    if (note(error) && error) {
      std::rethrow_exception(error);
    }
  }

  // For a kernel that will not run, at its end.
  void give_up() noexcept {
    if (!is_finished()) {
      note(
          std::make_exception_ptr(
              std::runtime_error(
                  "openreg: this collective did not run, because the device "
                  "had failed before.")));
    }
  }

  // From here on a stream relies on the result. Raises what is known already.
  void promise() {
    const std::lock_guard lock(mutex_);
    if (error_) {
      std::rethrow_exception(error_);
    }
    promised_ = true;
  }
  // [/outcome-told]

  // Waits on the host, for ever or so long; returns whether it has ended.
  bool wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto finished = [&] { return finished_; };
    if (timeout.count() > 0) {
      return done_.wait_for(lock, timeout, finished);
    }
    done_.wait(lock, finished);
    return true;
  }

  bool is_finished() const {
    const std::lock_guard lock(mutex_);
    return finished_;
  }
  std::exception_ptr error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  // The first error counts. Returns whether a stream relies on the result.
  bool note(const std::exception_ptr& error) noexcept {
    const std::lock_guard lock(mutex_);
    error_ = error_ ? error_ : error;
    pending_ -= pending_ > 0;
    if (pending_ == 0) {
      finished_ = true;
      done_.notify_all();
    }
    return promised_;
  }

  mutable std::mutex mutex_;
  std::condition_variable done_;
  size_t pending_ = 1;
  bool finished_ = false;
  bool promised_ = false;
  std::exception_ptr error_;
};

}  // namespace openreg
