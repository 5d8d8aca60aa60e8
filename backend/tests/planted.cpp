// A driver with a fault: openreg's own, and before it these functions.
//
// planted.py loads the library of this file before the backend, whose calls
// then come here, and go on to the driver. FAULT names what is done wrong. So
// that the order of work shows, each kernel of a stream takes long.

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device/openreg.h"

namespace {

void* find(const char* name) {
  static void* const driver = dlopen("libopenreg.so", RTLD_LAZY | RTLD_NOLOAD);
  return dlsym(driver, name);
}

// The driver's own; this library is loaded before there is one.
#define DRIVER(function) reinterpret_cast<decltype(&function)>(find(#function))

bool planted(const char* name) {
  const char* const fault = std::getenv("FAULT");
  return fault != nullptr && std::strcmp(fault, name) == 0;
}

bool is_default(orStream_t stream) {
  int device = 0;
  orStream_t found = nullptr;
  return DRIVER(orStreamGetDevice)(stream, &device) == orSuccess &&
         DRIVER(orDeviceGetDefaultStream)(&found, device) == orSuccess &&
         found == stream;
}

void pause(void* /*args*/) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

orError_t orLaunchKernel(
    orStream_t stream,
    const char* name,
    orKernelFn fn,
    void* args,
    orReleaseFn release) {
  if (!is_default(stream)) {
    DRIVER(orLaunchHostFunc)(stream, pause, nullptr, nullptr);
  }
  return DRIVER(orLaunchKernel)(stream, name, fn, args, release);
}

orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event) {
  return planted("wait_ignored") ? orSuccess
                                 : DRIVER(orStreamWaitEvent)(stream, event);
}

orError_t orMemcpyAsync(
    void* dst,
    const void* src,
    size_t count,
    orMemcpyKind kind,
    orStream_t stream) {
  if (planted("copy_out_of_order") && !is_default(stream)) {
    return DRIVER(orMemcpy)(dst, src, count, kind);
  }
  return DRIVER(orMemcpyAsync)(dst, src, count, kind, stream);
}
