/* The C API of libopenreg.so, an accelerator emulated on the CPU.
 *
 * The calls are shaped like the CUDA Runtime's, with the prefix `or`. Each
 * comment ends by naming the CUDA twin and, where there is one, the difference.
 *
 * Every call returns an orError_t. A call that fails changes nothing, and
 * leaves a sentence for orGetErrorDetail(). No call throws. All calls may be
 * made from any thread; "current device" is a property of the thread.
 *
 * The environment is read at the first call. A process uses the device once it
 * has called orMalloc, orMallocHost, orMemGetInfo or orLaunchKernel. A child
 * forked later is cut off: its calls give orErrorForkedProcess, but for orFree
 * and orFreeHost, which do nothing. A child forked before starts afresh.
 */
#ifndef OPENREG_H
#define OPENREG_H

#include <stddef.h>
#include <stdint.h>

#define OPENREG_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* What a call can answer. */
typedef enum orError_t {
  orSuccess = 0,
  orErrorInvalidValue = 1,
  orErrorMemoryAllocation = 2,
  orErrorInvalidConfiguration = 3, /* a malformed OPENREG_* variable */
  orErrorForkedProcess = 4,        /* the parent used the device */
  orErrorInvalidDevice = 5,
  orErrorInvalidDevicePointer = 6,
  orErrorInvalidMemcpyDirection = 7,
  orErrorInvalidResourceHandle = 8,
  orErrorLaunchFailure = 9, /* a kernel reported that it failed */
} orError_t;

/* The code's name, such as "orErrorInvalidValue". Never NULL.
 * CUDA: cudaGetErrorName. */
OPENREG_API const char* orGetErrorName(orError_t error);

/* The code's meaning in one phrase. Never NULL. CUDA: cudaGetErrorString. */
OPENREG_API const char* orGetErrorString(orError_t error);

/* The last error of this thread, which is then reset to orSuccess.
 * CUDA: cudaGetLastError. */
OPENREG_API orError_t orGetLastError(void);

/* The last error of this thread, left as it is. CUDA: cudaPeekAtLastError. */
OPENREG_API orError_t orPeekAtLastError(void);

/* A sentence about this thread's most recent failure: what was wrong, what was
 * expected. Valid until the thread's next failure. CUDA: no twin. */
OPENREG_API const char* orGetErrorDetail(void);

typedef struct orDeviceProp {
  char name[64];
  size_t total_memory; /* bytes */
  int major;           /* capability, as in CUDA's compute capability */
  int minor;
  int multi_processor_count; /* CPUs that this process may run on */
} orDeviceProp;

/* The number of devices, OPENREG_DEVICE_COUNT (0 to 16, default 2). Where it
 * is 0, every other call that needs a device gives orErrorInvalidDevice.
 * CUDA: cudaGetDeviceCount; there no device is an error, here it is 0. */
OPENREG_API orError_t orGetDeviceCount(int* count);

/* This thread's current device, at first 0. CUDA: cudaGetDevice. */
OPENREG_API orError_t orGetDevice(int* device);

/* Makes `device` current for this thread. CUDA: cudaSetDevice. */
OPENREG_API orError_t orSetDevice(int device);

/* What there is to know about `device`. CUDA: cudaGetDeviceProperties. */
OPENREG_API orError_t orGetDeviceProperties(orDeviceProp* prop, int device);

/* Waits for all work of the current device. CUDA: cudaDeviceSynchronize. */
OPENREG_API orError_t orDeviceSynchronize(void);

/* [dev-address-space] Two ranges of addresses, a constant apart. */
typedef struct orAddressSpace {
  uintptr_t device_base;   /* device d owns [base + d*capacity, +capacity) */
  size_t device_bytes;     /* of all devices together */
  size_t device_capacity;  /* bytes of one device */
  ptrdiff_t kernel_offset; /* device address + this = where a kernel looks */
} orAddressSpace;
/* [/dev-address-space] */

/* Where the two ranges are. Constant once it has succeeded.
 * CUDA: no twin, a GPU's kernels use its addresses as they are. */
OPENREG_API orError_t orGetAddressSpace(orAddressSpace* space);

/* `size` bytes of the current device. The pointer is aligned to a page and
 * must not be followed by the host. `size` 0 gives NULL.
 * orErrorMemoryAllocation when the device is full. CUDA: cudaMalloc. */
OPENREG_API orError_t orMalloc(void** ptr, size_t size);

/* Takes a pointer that orMalloc returned, of any device; NULL does nothing.
 * orErrorInvalidDevicePointer for all else: interior pointers, a second free.
 * The pages go back to the system. CUDA: cudaFree. */
OPENREG_API orError_t orFree(void* ptr);

/* Page-locked host memory, which the host may use freely. orFreeHost takes a
 * pointer that orMallocHost returned, or NULL; orErrorInvalidValue for all
 * else. CUDA: cudaMallocHost and cudaFreeHost; here nothing is locked. */
OPENREG_API orError_t orMallocHost(void** ptr, size_t size);
OPENREG_API orError_t orFreeHost(void* ptr);

/* Free and total bytes of the current device, in whole pages.
 * CUDA: cudaMemGetInfo. */
OPENREG_API orError_t orMemGetInfo(size_t* free, size_t* total);

typedef enum orMemoryType {
  orMemoryTypeUnregistered = 0, /* ordinary (pageable) host memory */
  orMemoryTypeHost = 1,         /* orMallocHost */
  orMemoryTypeDevice = 2,
} orMemoryType;

typedef struct orPointerAttributes {
  orMemoryType type;
  int device;  /* owner; for pinned memory the device that was current */
  void* base;  /* start of the block, NULL when unregistered */
  size_t size; /* bytes of the block, 0 when unregistered */
} orPointerAttributes;

/* Describes the block that `ptr` points into, anywhere in it. An address in
 * the device range that is in no block is orErrorInvalidDevicePointer; NULL
 * and all other host memory is unregistered, with device -1.
 * CUDA: cudaPointerGetAttributes, which has no base and size. */
OPENREG_API orError_t
orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr);

typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3,
  orMemcpyDefault = 4, /* inferred from the pointers */
} orMemcpyKind;

/* Copies `count` bytes and returns when that is done. Device pointers may be
 * interior, ranges may overlap, and `count` 0 does nothing whatever the
 * pointers. orErrorInvalidMemcpyDirection when `kind` and a pointer disagree,
 * orErrorInvalidDevicePointer outside any block, orErrorInvalidValue when the
 * copy would pass the end of a block, device or pinned.
 * CUDA: cudaMemcpy. */
OPENREG_API orError_t
orMemcpy(void* dst, const void* src, size_t count, orMemcpyKind kind);

/* As orMemcpy, between devices that are named; a pointer to memory of another
 * device is orErrorInvalidDevicePointer.
 * CUDA: cudaMemcpyPeer. */
OPENREG_API orError_t orMemcpyPeer(
    void* dst, int dst_device, const void* src, int src_device, size_t count);

/* Sets `count` bytes of device memory to the low byte of `value`.
 * CUDA: cudaMemset. */
OPENREG_API orError_t orMemset(void* ptr, int value, size_t count);

/* [dev-launch] Work for a stream. */
typedef struct orStream* orStream_t; /* NULL: the current device's default */

/* A kernel answers orSuccess or orErrorLaunchFailure, and does not throw. */
typedef orError_t (*orKernelFn)(void* args);
typedef void (*orReleaseFn)(void* args);

/* Runs fn(args) in the order of `stream`. `args` belongs to the launch from
 * here on: release(args), unless NULL, is called once, after fn has run or
 * when the device drops the work unrun, also when this call fails. An answer
 * other than orSuccess makes the launch orErrorLaunchFailure.
 * `name` must outlive the process (a literal). CUDA: cudaLaunchKernel, which
 * copies the arguments instead. */
OPENREG_API orError_t orLaunchKernel(
    orStream_t stream,
    const char* name,
    orKernelFn fn,
    void* args,
    orReleaseFn release);
/* [/dev-launch] */

/* The default stream of a device. CUDA: the handle cudaStreamLegacy, which
 * means the current device's. */
OPENREG_API orError_t orDeviceGetDefaultStream(orStream_t* stream, int device);

/* Writes one line about a faulting address into `buffer`, NUL-terminated and
 * cut at `size` bytes: the device, the block and the likely mistake. Returns
 * the written length, or 0 when the address is not in the device range. Takes
 * no lock and allocates nothing, so a signal handler may call it: the one that
 * the first use of a device installs for SIGSEGV and SIGBUS does, and then
 * calls the handler that it found. OPENREG_SEGV_HANDLER=0 leaves it out.
 * CUDA: no twin. */
OPENREG_API size_t
orExplainFault(const void* address, char* buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
