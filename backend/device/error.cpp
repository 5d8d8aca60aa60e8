#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <memory>
#include <utility>

#include "device/device.h"
#include "device/error.h"

namespace emulator {

namespace {

thread_local orError_t last_error = orSuccess;
thread_local Texts* kept_texts = nullptr;

struct Words {
  const char* name;
  const char* meaning;
};

// By the number of the error.
constexpr Words kWords[] = {
    {"orSuccess", "no error"},
    {"orErrorInvalidValue", "invalid argument"},
    {"orErrorMemoryAllocation", "out of memory"},
    {"orErrorInvalidConfiguration", "malformed environment variable"},
    {"orErrorForkedProcess",
     "the device was in use when this process was forked"},
    {"orErrorInvalidDevice", "no such device"},
    {"orErrorInvalidDevicePointer", "not a pointer to device memory in use"},
    {"orErrorInvalidMemcpyDirection",
     "the copy's kind does not fit its pointers"},
    {"orErrorInvalidResourceHandle", "no such stream or event"},
    {"orErrorLaunchFailure", "a kernel failed"},
    {"orErrorDeviceFailed", "queued work of the device failed earlier"},
    {"orErrorNotReady", "the work is not done yet"},
    {"orErrorNotPermitted", "not permitted here"},
    {"orErrorInitializationError", "the devices could not be started"},
    {"orErrorStreamCaptureUnsupported", "not possible in a capture"},
    {"orErrorStreamCaptureInvalidated", "the capture is broken"},
};
static_assert(std::size(kWords) == orErrorStreamCaptureInvalidated + 1);

Words words_for(orError_t error) {
  const size_t number = static_cast<size_t>(error);
  return number < std::size(kWords)
             ? kWords[number]
             : Words{"unknown error code", "unknown error code"};
}

}  // namespace

// What is said after the end of its thread is kept for good.
Texts& texts() {
  thread_local const std::shared_ptr<void> at_exit(
      nullptr, [](void*) { delete std::exchange(kept_texts, nullptr); });
  return *(kept_texts ? kept_texts : kept_texts = new Texts{});
}

// [dev-fail] A failure is remembered by the thread that met it.
orError_t fail(orError_t error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(texts().detail, sizeof(Texts::detail), format, arguments);
  va_end(arguments);
  last_error = error;
  return error;
}
// [/dev-fail]

// [dev-failure] The first failure of a device counts, until it is reset.
void set_failure(Device* device, const std::string& sentence) {
  Failure& failure = device->failure;
  const std::lock_guard lock(failure.mutex);
  if (failure.sentence.load() == nullptr) {
    failure.sentences.emplace_back(sentence);
    failure.sentence = failure.sentences.back().c_str();
  }
}

orError_t report_failure(const Device& device, const char* sentence) {
  return fail(
      orErrorDeviceFailed,
      "device %d has failed: %s; orDeviceReset ends this",
      device.index,
      sentence);
}
// [/dev-failure]

}  // namespace emulator

const char* orGetErrorName(orError_t error) {
  return emulator::words_for(error).name;
}

const char* orGetErrorString(orError_t error) {
  return emulator::words_for(error).meaning;
}

// Reading the last error takes it; peeking leaves it.
orError_t orGetLastError(void) {
  const orError_t error = emulator::last_error;
  emulator::last_error = orSuccess;
  return error;
}

orError_t orPeekAtLastError(void) {
  return emulator::last_error;
}

const char* orGetErrorDetail(void) {
  return emulator::texts().detail;
}
