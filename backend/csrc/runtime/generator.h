#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "csrc/runtime/device.h"

// Random numbers: the device's own generators, and the CPU's that draw for
// them.

namespace openreg {

// The generator that `device` uses where a caller names none. -1 means the
// current device. Raises for an index out of range.
OPENREG_EXPORT const at::Generator& default_generator(c10::DeviceIndex device);

// A new generator for `device`, seeded with PyTorch's default seed.
OPENREG_EXPORT at::Generator make_generator(c10::DeviceIndex device);

// The CPU generator that draws for `generator` in a kernel of `device`, which
// locks it as it would any CPU generator. Raises PyTorch's "Expected a '...'
// device type for generator" when it is of another device type, and its
// "Expected a '...' generator device" when it is of another device.
OPENREG_EXPORT at::Generator inner_generator(
    const at::Generator& generator, c10::DeviceIndex device);

// Called before somebody asks for, or sets, what a generator of `device` will
// draw. Raises where that is not possible; graphs refuse it in a capture.
extern void (*before_state_access)(c10::DeviceIndex device);

}  // namespace openreg
