#include <cstdarg>
#include <cstdio>

#include "device/state.h"

namespace openreg {

namespace {

thread_local orError_t last_error = orSuccess;
thread_local char last_detail[768] = "";

}  // namespace

// [dev-fail] A failure is remembered by the thread that met it.
orError_t fail(orError_t error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_detail, sizeof(last_detail), format, arguments);
  va_end(arguments);
  last_error = error;
  return error;
}
// [/dev-fail]

// [dev-failure] The first failure of a device counts, until it is reset.
void set_failure(Device* device, const char* sentence) {
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

}  // namespace openreg

const char* orGetErrorName(orError_t error) {
  switch (error) {
    case orSuccess:
      return "orSuccess";
    case orErrorInvalidValue:
      return "orErrorInvalidValue";
    case orErrorMemoryAllocation:
      return "orErrorMemoryAllocation";
    case orErrorInvalidConfiguration:
      return "orErrorInvalidConfiguration";
    case orErrorForkedProcess:
      return "orErrorForkedProcess";
    case orErrorInvalidDevice:
      return "orErrorInvalidDevice";
    case orErrorInvalidDevicePointer:
      return "orErrorInvalidDevicePointer";
    case orErrorInvalidMemcpyDirection:
      return "orErrorInvalidMemcpyDirection";
    case orErrorInvalidResourceHandle:
      return "orErrorInvalidResourceHandle";
    case orErrorLaunchFailure:
      return "orErrorLaunchFailure";
    case orErrorDeviceFailed:
      return "orErrorDeviceFailed";
    case orErrorNotReady:
      return "orErrorNotReady";
    case orErrorNotPermitted:
      return "orErrorNotPermitted";
    case orErrorInitializationError:
      return "orErrorInitializationError";
  }
  return "unknown error code";
}

const char* orGetErrorString(orError_t error) {
  switch (error) {
    case orSuccess:
      return "no error";
    case orErrorInvalidValue:
      return "invalid argument";
    case orErrorMemoryAllocation:
      return "out of memory";
    case orErrorInvalidConfiguration:
      return "malformed environment variable";
    case orErrorForkedProcess:
      return "the device was in use when this process was forked";
    case orErrorInvalidDevice:
      return "no such device";
    case orErrorInvalidDevicePointer:
      return "not a pointer to device memory in use";
    case orErrorInvalidMemcpyDirection:
      return "the copy's kind does not fit its pointers";
    case orErrorInvalidResourceHandle:
      return "no such stream or event";
    case orErrorLaunchFailure:
      return "a kernel failed";
    case orErrorDeviceFailed:
      return "queued work of the device failed earlier";
    case orErrorNotReady:
      return "the work is not done yet";
    case orErrorNotPermitted:
      return "not permitted here";
    case orErrorInitializationError:
      return "the devices could not be started";
  }
  return "unknown error code";
}

// Reading the last error takes it; peeking leaves it.
orError_t orGetLastError(void) {
  const orError_t error = openreg::last_error;
  openreg::last_error = orSuccess;
  return error;
}

orError_t orPeekAtLastError(void) {
  return openreg::last_error;
}

const char* orGetErrorDetail(void) {
  return openreg::last_detail;
}
