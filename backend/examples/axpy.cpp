// y = a * x + y on the device, through its C API alone.

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "device/openreg.h"

namespace {

// [axpy-check] Every call returns an error code, and each is checked.
void check(orError_t error, const char* call) {
  if (error != orSuccess) {
    std::printf(
        "%s: %s (%s)\n", call, orGetErrorName(error), orGetErrorDetail());
    std::exit(1);
  }
}

#define CHECK(call) check((call), #call)
// [/axpy-check]

// [axpy-kernel] A kernel gets one pointer, here to these arguments.
struct Axpy {
  float a;
  const float* x;  // where a kernel looks
  float* y;
  size_t count;
};

orError_t axpy(void* args) {
  const Axpy& self = *static_cast<Axpy*>(args);
  for (size_t i = 0; i < self.count; ++i) {
    self.y[i] += self.a * self.x[i];
  }
  return orSuccess;
}

void release(void* args) {
  delete static_cast<Axpy*>(args);
}
// [/axpy-kernel]

}  // namespace

// [axpy-main] Allocate, copy in, launch, copy out.
int main() {
  const float x[] = {1, 2, 3};
  float y[] = {10, 20, 30};
  orAddressSpace space;
  void* device_x;
  void* device_y;
  CHECK(orGetAddressSpace(&space));
  CHECK(orMalloc(&device_x, sizeof(x)));
  CHECK(orMalloc(&device_y, sizeof(y)));
  CHECK(orMemcpy(device_x, x, sizeof(x), orMemcpyHostToDevice));
  CHECK(orMemcpy(device_y, y, sizeof(y), orMemcpyHostToDevice));

  const ptrdiff_t offset = space.kernel_offset;
  Axpy* const args = new Axpy{
      2,
      reinterpret_cast<float*>(static_cast<char*>(device_x) + offset),
      reinterpret_cast<float*>(static_cast<char*>(device_y) + offset),
      3};
  CHECK(orLaunchKernel(nullptr, "axpy", axpy, args, release));
  CHECK(orDeviceSynchronize());

  CHECK(orMemcpy(y, device_y, sizeof(y), orMemcpyDeviceToHost));
  std::printf("%g %g %g\n", y[0], y[1], y[2]);
  CHECK(orFree(device_x));
  CHECK(orFree(device_y));
}
// [/axpy-main]

// expect: ok
