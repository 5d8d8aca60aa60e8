#include "device/state.h"

// Kernels and the streams that order them. For now each device has its default
// stream alone, which runs a kernel on the thread that launches it.

namespace openreg {

namespace {

// [dev-arguments] A launch owns its arguments, whichever way it ends.
class Arguments {
 public:
  Arguments(void* args, orReleaseFn release) : args_(args), release_(release) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() {
    if (release_ != nullptr) {
      release_(args_);
    }
  }

 private:
  void* args_;
  orReleaseFn release_;
};
// [/dev-arguments]

// A handle is compared, never followed: it may be anything.
const orStream* find_stream(Machine* machine, orStream_t stream) {
  if (stream == nullptr) {
    return &machine->devices[current_index].default_stream;
  }
  for (int index = 0; index < machine->config.device_count; ++index) {
    if (stream == &machine->devices[index].default_stream) {
      return stream;
    }
  }
  fail(
      orErrorInvalidResourceHandle,
      "%p is not a stream",
      static_cast<void*>(stream));
  return nullptr;
}

}  // namespace

}  // namespace openreg

using namespace openreg;

// [dev-launch-kernel] The one way in which work reaches a device.
orError_t orLaunchKernel(
    orStream_t stream,
    const char* name,
    orKernelFn fn,
    void* args,
    orReleaseFn release) {
  const Arguments arguments(args, release);
  Machine* const machine = use_machine();
  if (machine == nullptr) {
    return orPeekAtLastError();
  }
  if (name == nullptr || fn == nullptr) {
    return fail(orErrorInvalidValue, "orLaunchKernel: name or fn is NULL");
  }
  const orStream* const place = find_stream(machine, stream);
  if (place == nullptr) {
    return orPeekAtLastError();
  }
  const orError_t answer = fn(args);
  if (answer != orSuccess) {
    return fail(
        orErrorLaunchFailure,
        "kernel %s on device %d answered %s",
        name,
        place->device,
        orGetErrorName(answer));
  }
  return orSuccess;
}
// [/dev-launch-kernel]

orError_t orDeviceGetDefaultStream(orStream_t* stream, int device) {
  if (stream == nullptr) {
    return fail(
        orErrorInvalidValue, "orDeviceGetDefaultStream: stream is NULL");
  }
  Machine* const machine = get_machine();
  Device* const place =
      machine == nullptr ? nullptr : find_device(machine, device);
  if (place == nullptr) {
    return orPeekAtLastError();
  }
  *stream = &place->default_stream;
  return orSuccess;
}
