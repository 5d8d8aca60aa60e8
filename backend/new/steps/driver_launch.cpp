#include "csrc/driver.h"

// The launch of the first driver: at once, since all earlier work is done.
// Replace this file, too.

drvError_t drvLaunchKernel(
    drvStream_t /*stream*/,
    const char* /*name*/,
    drvKernelFn kernel,
    void* args,
    drvReleaseFn release) {
  const drvError_t error = kernel(args);
  release(args);
  return error;
}
