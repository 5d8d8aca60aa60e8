#pragma once

#include "csrc/driver.h"

// A queue of a device's work, in whose order memory is reused.
struct drvQueue;
using drvStream_t = drvQueue*;

// The queue that a device has from the start, the same one each time.
// drvErrorInvalidDevice unless 0 <= device < count.
drvError_t drvDeviceGetDefaultStream(drvStream_t* stream, int device);
