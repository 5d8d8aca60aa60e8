#include <cstdint>

#include <openreg/runtime/address.h>
#include <openreg/runtime/launch.h>

// A library of somebody else's, which launches a kernel of its own.

// [extension-scale] Work for the current stream, on memory of the device.
extern "C" __attribute__((visibility("default"))) bool scale(
    float* data, int64_t count, float factor) {
  if (!openreg::is_device_address(data)) {
    return false;
  }
  float* const values = openreg::to_kernel(data);
  const openreg::Call call(openreg::device_of(data), "extension::scale");
  openreg::launch(call, openreg::Runs::kQueued, [=] {
    for (int64_t i = 0; i < count; ++i) {
      values[i] *= factor;
    }
  });
  return true;
}
// [/extension-scale]

// expect: ok
