#pragma once

#include "csrc/driver.h"

// A kernel of this first driver is a function of the host. It throws nothing.
using drvKernelFn = drvError_t (*)(void* args);
using drvReleaseFn = void (*)(void* args);

// Runs kernel(args) on the stream's device after all earlier work of the
// stream, now or later. release(args) is called once, after the kernel, or
// without it when the call fails. `name`, a literal, is for traces and errors.
drvError_t drvLaunchKernel(
    drvStream_t stream,
    const char* name,
    drvKernelFn kernel,
    void* args,
    drvReleaseFn release);
