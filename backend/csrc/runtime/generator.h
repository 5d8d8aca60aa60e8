#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "csrc/runtime/device.h"

namespace openreg {

// The generator that `device` uses where a caller names none. -1 means the
// current device. Raises for an index out of range.
OPENREG_EXPORT const at::Generator& default_generator(c10::DeviceIndex device);

// A new generator for `device`, seeded with PyTorch's default seed.
OPENREG_EXPORT at::Generator make_generator(c10::DeviceIndex device);

// The CPU generator that draws for `generator`, which must be of device type
// PrivateUse1. Raises PyTorch's "Expected a '...' device type for generator"
// error otherwise. A kernel locks it as it would any CPU generator.
OPENREG_EXPORT const at::Generator& inner_generator(
    const at::Generator& generator);

}  // namespace openreg
