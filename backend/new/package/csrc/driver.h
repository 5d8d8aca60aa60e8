#pragma once

#include <cstddef>

// What the vendor has: the whole of the driver that this package needs. Keep
// the declarations and put your own calls into driver.cpp, or change both. All
// may be called by any thread. A call that fails says so by its code, changes
// nothing and throws nothing.

// What a call can answer.
enum drvError_t {
  drvSuccess = 0,
  drvErrorInvalidValue,
  drvErrorInvalidDevice,
  drvErrorMemoryAllocation,
};

// The code's name, such as "drvErrorInvalidValue". Never null.
const char* drvGetErrorName(drvError_t error);

// The code's meaning in one phrase. Never null.
const char* drvGetErrorString(drvError_t error);

// The number of devices, which stays the same as long as the process lives. A
// machine without any answers 0 and drvSuccess. It must not bring a device up:
// PyTorch asks before a process forks.
drvError_t drvGetDeviceCount(int* count);

// This thread's current device. Each thread begins with device 0.
drvError_t drvGetDevice(int* device);

// Makes a device current for this thread. drvErrorInvalidDevice unless
// 0 <= device < count.
drvError_t drvSetDevice(int device);

// Waits until the current device has done all its work, of every thread.
drvError_t drvDeviceSynchronize();

// The bytes of the current device, and how many of them are free.
drvError_t drvMemGetInfo(size_t* free, size_t* total);

// New memory of the current device, aligned to 64 bytes at least, whatever it
// holds; null for 0 bytes. drvErrorMemoryAllocation when it is full. PyTorch
// never follows the address on the host, but adds offsets to it, so a pointer
// into a block must mean what it says.
drvError_t drvMalloc(void** address, size_t bytes);

// Gives a block back, from whichever device is current. It may be reused at
// once, so this waits for work that still uses the block. Null is nothing, and
// drvErrorInvalidValue means that no block begins there.
drvError_t drvFree(void* address);

// Which way a copy goes.
enum drvMemcpyKind {
  drvMemcpyHostToDevice,
  drvMemcpyDeviceToHost,
  drvMemcpyDeviceToDevice,  // on one device or between two
};

// Copies bytes after all earlier work of the devices that take part, and
// returns when it is done. Device addresses may lie inside a block; 0 bytes are
// nothing. drvErrorInvalidValue when a range leaves its block.
drvError_t drvMemcpy(
    void* dst, const void* src, size_t bytes, drvMemcpyKind kind);
