/* The C API of libopenreg.so, an accelerator emulated on the CPU.
 *
 * The calls are shaped like the CUDA Runtime's, with the prefix `or`. Each
 * comment ends with the call's twin there and what differs, if anything does.
 *
 * Every call returns an orError_t. A call that fails changes nothing, and
 * leaves a sentence for orGetErrorDetail(). No call throws. All calls may be
 * made from any thread; "current device" is a property of the thread.
 *
 * The environment is read at the first call. A process uses the device once it
 * has allocated, launched or created something, or called orMemGetInfo. Where
 * the system lacks what that takes, the call gives orErrorInitializationError,
 * and a later one tries again. A child forked after the first use is cut off:
 * its calls give orErrorForkedProcess, but for orFree, orFreeHost and
 * orIpcCloseMemHandle, which do nothing. A child forked before starts afresh.
 *
 * At exit no queued work is begun any more and its arguments are not released;
 * kernels that run may end.
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
  orErrorDeviceFailed = 10, /* queued work failed earlier: orDeviceReset */
  orErrorNotReady = 11,     /* not an error: the work is not done yet */
  orErrorNotPermitted = 12, /* asked from inside the device's own work */
  orErrorInitializationError = 13,      /* the system does not let them start */
  orErrorStreamCaptureUnsupported = 14, /* it needs what is only captured */
  orErrorStreamCaptureInvalidated = 15, /* something broke the capture */
} orError_t;

/* The code's name, such as "orErrorInvalidValue". Never NULL.
 * Twin: cudaGetErrorName. */
OPENREG_API const char* orGetErrorName(orError_t error);

/* The code's meaning in one phrase. Never NULL.
 * Twin: cudaGetErrorString. */
OPENREG_API const char* orGetErrorString(orError_t error);

/* The last error of this thread, which is then reset to orSuccess.
 * Twin: cudaGetLastError. */
OPENREG_API orError_t orGetLastError(void);

/* The last error of this thread, left as it is.
 * Twin: cudaPeekAtLastError. */
OPENREG_API orError_t orPeekAtLastError(void);

/* A sentence about this thread's most recent failure: what was wrong, what was
 * expected. Valid until the thread's next failure.
 * Twin: none. Differs: CUDA leaves a code and no sentence. */
OPENREG_API const char* orGetErrorDetail(void);

/* What a device is. */
typedef struct orDeviceProp {
  char name[64];
  size_t total_memory; /* bytes */
  int major;           /* capability, as in CUDA's compute capability */
  int minor;
  int multi_processor_count; /* CPUs that this process may run on */
} orDeviceProp;

/* The number of devices, OPENREG_DEVICE_COUNT (0 to 16, default 2). Where it
 * is 0, every other call that needs a device gives orErrorInvalidDevice.
 * Twin: cudaGetDeviceCount. Differs: there no device is an error, here it
 * is 0. */
OPENREG_API orError_t orGetDeviceCount(int* count);

/* This thread's current device, at first 0.
 * Twin: cudaGetDevice. */
OPENREG_API orError_t orGetDevice(int* device);

/* Makes `device` current for this thread.
 * Twin: cudaSetDevice. Differs: since CUDA 12 that brings the device up, this
 * wakes nothing. */
OPENREG_API orError_t orSetDevice(int device);

/* What there is to know about `device`.
 * Twin: cudaGetDeviceProperties. Differs: that has many more fields. */
OPENREG_API orError_t orGetDeviceProperties(orDeviceProp* prop, int device);

/* Waits for all work of the current device, on all its streams.
 * orErrorDeviceFailed when queued work of that device has failed.
 * Twin: cudaDeviceSynchronize. */
OPENREG_API orError_t orDeviceSynchronize(void);

/* Drops what is queued on the current device, waits for what still runs, and
 * ends the failed state. Allocations, streams and events stay valid.
 * orErrorNotPermitted while the thread holds a turn there.
 * Twin: cudaDeviceReset. Differs: that frees everything and, once a kernel has
 * failed, does not bring the process's device back. */
OPENREG_API orError_t orDeviceReset(void);

/* [dev-address-space] Two ranges of addresses, a constant apart. */
typedef struct orAddressSpace {
  uintptr_t device_base;   /* device d owns [base + d*capacity, +capacity) */
  size_t device_bytes;     /* of all devices together */
  size_t device_capacity;  /* bytes of one device */
  ptrdiff_t kernel_offset; /* device address + this = where a kernel looks */
} orAddressSpace;
/* [/dev-address-space] */

/* Where the two ranges are, which are reserved now if they were not before.
 * Constant once it has succeeded.
 * Twin: none. Differs: a GPU's kernels use its addresses as they are. */
OPENREG_API orError_t orGetAddressSpace(orAddressSpace* space);

/* The same without a call, for readers only. All zero until the ranges are
 * reserved, as they are before there is a device address; device_bytes is
 * written last, so that a thread that reads it first, as an atomic, finds the
 * others. */
OPENREG_API extern orAddressSpace orReservedAddresses;

/* `size` bytes of the current device. The pointer is aligned to a page and
 * must not be followed by the host. `size` 0 gives NULL.
 * orErrorMemoryAllocation when the device is full.
 * Twin: cudaMalloc. Differs: that aligns to 256 bytes and not to a page. */
OPENREG_API orError_t orMalloc(void** ptr, size_t size);

/* Takes a pointer that orMalloc returned, of any device; NULL does nothing.
 * orErrorInvalidDevicePointer for all else: interior pointers, a second free.
 * Waits for the work of the device, failed or not; the pages go back to the
 * system.
 * Twin: cudaFree. */
OPENREG_API orError_t orFree(void* ptr);

/* Page-locked host memory, which the host may use freely. orFreeHost takes a
 * pointer that orMallocHost returned, or NULL; orErrorInvalidValue for all
 * else. It waits for the work of all devices.
 * Twin: cudaMallocHost, cudaFreeHost. Differs: nothing is locked. */
OPENREG_API orError_t orMallocHost(void** ptr, size_t size);
OPENREG_API orError_t orFreeHost(void* ptr);

/* Free and total bytes of the current device, in whole pages.
 * Twin: cudaMemGetInfo. Differs: what other processes take is not counted, each
 * has devices of its own. */
OPENREG_API orError_t orMemGetInfo(size_t* free, size_t* total);

/* Whose memory an address is in. */
typedef enum orMemoryType {
  orMemoryTypeUnregistered = 0, /* ordinary (pageable) host memory */
  orMemoryTypeHost = 1,         /* orMallocHost */
  orMemoryTypeDevice = 2,
} orMemoryType;

/* What the device knows of an address. */
typedef struct orPointerAttributes {
  orMemoryType type;
  int device;  /* owner; for pinned memory the device that was current */
  void* base;  /* start of the block, NULL when unregistered */
  size_t size; /* bytes of the block, 0 when unregistered */
} orPointerAttributes;

/* Describes the block that `ptr` points into, anywhere in it. An address in
 * the device range that is in no block is orErrorInvalidDevicePointer; NULL
 * and all other host memory is unregistered, with device -1.
 * Twin: cudaPointerGetAttributes. Differs: that has no base and size, for which
 * the driver has cuMemGetAddressRange. */
OPENREG_API orError_t
orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr);

/* From where to where a copy goes. */
typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3,
  orMemcpyDefault = 4, /* inferred from the pointers */
} orMemcpyKind;

/* Copies `count` bytes in the order of the default stream of the device that a
 * pointer belongs to (dst's first), and returns when that is done. Device
 * pointers may be interior, ranges may overlap, and `count` 0 does nothing
 * whatever the pointers. orErrorInvalidMemcpyDirection when `kind` and a
 * pointer disagree, orErrorInvalidDevicePointer outside any block,
 * orErrorInvalidValue when the copy would pass the end of a block, device or
 * pinned.
 * Twin: cudaMemcpy, cudaMemcpyPeer. Differs: ranges that overlap and copies
 * past the end of a block have no meaning there. */
OPENREG_API orError_t
orMemcpy(void* dst, const void* src, size_t count, orMemcpyKind kind);

/* Sets `count` bytes of device memory to the low byte of `value`, in the order
 * of the default stream of its device, and returns when that is done.
 * Twin: cudaMemset. Differs: that may return earlier. */
OPENREG_API orError_t orMemset(void* ptr, int value, size_t count);

/* A queue of work; NULL stands for the current device's default stream. */
typedef struct orStream* orStream_t;
/* A name for a moment in the order of a stream. */
typedef struct orEvent* orEvent_t;

/* As orMemcpy and orMemset, in the order of `stream`. All that
 * can be refused is refused before they return. Between device and pinned
 * memory they may return before the copy is made. A copy from pageable host
 * memory has read it when the call returns; one into pageable host memory has
 * been made.
 * Twin: cudaMemcpyAsync, cudaMemsetAsync. Differs: a range
 * that leaves its block is refused at the call. */
OPENREG_API orError_t orMemcpyAsync(
    void* dst,
    const void* src,
    size_t count,
    orMemcpyKind kind,
    orStream_t stream);
OPENREG_API orError_t
orMemsetAsync(void* ptr, int value, size_t count, orStream_t stream);

/* Threads of the host that the device may use: `count` says how many at most,
 * and `share` calls part(args, begin, end) on that many for ranges that make up
 * 0 to `count`, and returns when all have returned. */
typedef struct orHostThreads {
  int (*count)(void);
  void (*share)(
      int threads,
      size_t count,
      void (*part)(const void* args, size_t begin, size_t end),
      const void* args);
} orHostThreads;

/* Lends them for copies and fills of 192 KiB or more, which one thread makes
 * otherwise. `threads` must outlive the process; NULL takes them back.
 * Twin: none. Differs: there copies have engines of their own. */
OPENREG_API void orSetHostThreads(const orHostThreads* threads);

/* [dev-launch] Work for a stream. */
/* A kernel answers orSuccess or orErrorLaunchFailure, and does not throw. */
typedef orError_t (*orKernelFn)(void* args);
typedef void (*orReleaseFn)(void* args);

/* Runs fn(args) in the order of `stream`: at once on this thread, or later on
 * the stream's worker (see OPENREG_LAUNCH below). From the call on, `args`
 * belongs to the launch: release(args), unless NULL, is called once, after
 * fn has run, or without it if the device drops the work or this call fails.
 * If fn fails before the call returns, that is orErrorLaunchFailure.
 * If it fails later, its device fails: what is queued there is dropped,
 * waits end, and launches and waits are orErrorDeviceFailed until
 * orDeviceReset.
 * `name` is for traces and errors, and must outlive the process (a literal).
 * Twin: cudaLaunchKernel. Differs: that copies the arguments, and a context
 * whose kernel failed cannot be reset. */
OPENREG_API orError_t orLaunchKernel(
    orStream_t stream,
    const char* name,
    orKernelFn fn,
    void* args,
    orReleaseFn release);
/* [/dev-launch] */

/* Called by a kernel before it answers orErrorLaunchFailure: why. The sentence
 * is copied, and becomes part of the error's detail.
 * Twin: none. Differs: a kernel there can stop, but not say why. */
OPENREG_API void orSetKernelError(const char* message);

/* What the host does in the order of a stream. */
typedef void (*orHostFn)(void* args);

/* Runs fn(args) on the host, in the order of `stream`. From inside it, every
 * launch and every wait is orErrorNotPermitted, which includes freeing memory.
 * The same holds for a kernel that runs on a worker. `args` and `release` as in
 * orLaunchKernel.
 * Twin: cudaLaunchHostFunc. Differs: there every call of the API is forbidden
 * inside, and need not be noticed. */
OPENREG_API orError_t orLaunchHostFunc(
    orStream_t stream, orHostFn fn, void* args, orReleaseFn release);

/* Streams. Work of one stream runs in order; nothing but events orders work of
 * different streams, default streams included (as with CUDA's
 * --default-stream per-thread).
 *
 * OPENREG_LAUNCH says when work runs. `auto`: work for a default stream on
 * which nothing is pending runs at once on the calling thread, all other work
 * is queued for the stream's worker thread. `async`: all work is queued.
 * `blocking`: every launch returns when its work is done, as with
 * CUDA_LAUNCH_BLOCKING=1. */

/* The default stream of a device.
 * Twin: cudaStreamLegacy. Differs: that is a constant which means the current
 * device's, and its work waits for other streams. */
OPENREG_API orError_t orDeviceGetDefaultStream(orStream_t* stream, int device);

/* The priorities that a stream can have; lower numbers go first where threads
 * compete for a CPU. Here 0 and -1.
 * Twin: cudaDeviceGetStreamPriorityRange. Differs: there the hardware
 * decides. */
OPENREG_API orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest);

/* A new stream of the current device. A priority out of range is clamped into
 * it. Its worker starts with its first queued work.
 * Twin: cudaStreamCreateWithPriority. Differs: without its flags, every stream
 * is as with cudaStreamNonBlocking. */
OPENREG_API orError_t
orStreamCreateWithPriority(orStream_t* stream, int priority);

/* The handle is invalid from here on; pending work is still done. A default
 * stream is orErrorInvalidResourceHandle, a stream on which the thread holds a
 * turn orErrorNotPermitted.
 * Twin: cudaStreamDestroy. Differs: there the later use of the handle has no
 * meaning, here it is refused. */
OPENREG_API orError_t orStreamDestroy(orStream_t stream);

/* The device of a stream; its priority.
 * Twin: cudaStreamGetDevice, cudaStreamGetPriority. */
OPENREG_API orError_t orStreamGetDevice(orStream_t stream, int* device);
OPENREG_API orError_t orStreamGetPriority(orStream_t stream, int* priority);

/* orSuccess when all work is done, orErrorNotReady when not (which is not
 * remembered as an error), orErrorDeviceFailed when it may have been dropped.
 * Twin: cudaStreamQuery. */
OPENREG_API orError_t orStreamQuery(orStream_t stream);

/* Waits for all work launched so far.
 * Twin: cudaStreamSynchronize. */
OPENREG_API orError_t orStreamSynchronize(orStream_t stream);

/* Later work of `stream` waits for the record that `event` has now; one that
 * was never recorded orders nothing. The event may be of another device.
 * Twin: cudaStreamWaitEvent. Differs: without its flags. */
OPENREG_API orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event);

/* Later work of `stream` waits until *address >= value. The host writes there
 * when it likes; the address must stay readable until then. It must be aligned
 * host memory, else orErrorInvalidValue.
 * Twin: cuStreamWaitValue64. Differs: that is the driver's, with a flag for the
 * comparison: this is as CU_STREAM_WAIT_VALUE_GEQ. */
OPENREG_API orError_t
orStreamWaitValue64(orStream_t stream, const uint64_t* address, uint64_t value);

/* [dev-turn] Work that must run on the calling thread takes its turn. */
/* Waits for all earlier work of `stream` and holds later work back until
 * orStreamEndTurn, which the same thread must call. What this thread launches
 * on the stream meanwhile runs at once, and so does a turn inside the turn.
 * As with a lock, the holder must not wait for work that waits for the turn.
 * `name` is for traces, and must stay readable until the turn ends.
 * orStreamEndTurn by another thread is orErrorNotPermitted.
 * Twin: none. Differs: a CPU's kernel library needs the caller's thread, a
 * GPU's does not. */
OPENREG_API orError_t orStreamBeginTurn(orStream_t stream, const char* name);
OPENREG_API orError_t orStreamEndTurn(orStream_t stream);

/* 1 when a launch on `stream` would run at once on the calling thread, if
 * nobody else launched first; else 0.
 * Twin: none. Differs: no launch there runs on the calling thread. */
OPENREG_API int orStreamRunsInline(orStream_t stream);

/* 1 while this thread has its turn on a stream of any device, else 0. It must
 * not wait for other threads then, who may be waiting for that turn.
 * Twin: none. Differs: there are no turns. */
OPENREG_API int orThreadHasTurn(void);
/* [/dev-turn] */

/* Events. */
enum {
  orEventDefault = 0,
  orEventDisableTiming = 2, /* as cudaEventDisableTiming */
};

/* An event of the current device; it has no record yet. orErrorInvalidValue
 * for unknown flags.
 * Twin: cudaEventCreateWithFlags. Differs: there are flags for blocking waits
 * and for other processes. */
OPENREG_API orError_t orEventCreate(orEvent_t* event, unsigned flags);

/* May be called with a record pending; waits for it still end as they would.
 * Twin: cudaEventDestroy. */
OPENREG_API orError_t orEventDestroy(orEvent_t event);

/* The event stands for all work launched on `stream` so far, and no longer for
 * what it was recorded for before; waits that came earlier keep that. A stream
 * of another device than the event's is orErrorInvalidResourceHandle.
 * Twin: cudaEventRecord. */
OPENREG_API orError_t orEventRecord(orEvent_t event, orStream_t stream);

/* orSuccess when the latest record is done or there is none, orErrorNotReady
 * when it is not, orErrorDeviceFailed when its work may have been dropped.
 * Twin: cudaEventQuery. */
OPENREG_API orError_t orEventQuery(orEvent_t event);

/* Waits for the latest record.
 * Twin: cudaEventSynchronize. */
OPENREG_API orError_t orEventSynchronize(orEvent_t event);

/* Milliseconds from one record to the other. orErrorNotReady when one is not
 * done, orErrorInvalidResourceHandle when one has no record or no timing or
 * when they are of different devices.
 * Twin: cudaEventElapsedTime. */
OPENREG_API orError_t
orEventElapsedTime(float* milliseconds, orEvent_t start, orEvent_t end);

/* Work that was captured, to be launched again and again. */
typedef struct orGraph* orGraph_t;

/* [dev-graph] A graph keeps the work of streams and launches it as one. */
/* From here until orStreamEndCapture, what any thread launches on `stream` is
 * kept and does not run; what is refused at a launch is refused now. A turn
 * that another thread began before is no part of it. A stream that waits for an
 * event recorded there takes part from then on, but no default stream can. Any
 * call that needs such work done is orErrorStreamCaptureUnsupported and breaks
 * the capture: a turn, a copy to pageable memory, a synchronization or query of
 * stream, device or event, a wait for an event recorded outside.
 * orErrorNotPermitted where the stream is captured already or this thread holds
 * its turn.
 * Twin: cudaStreamBeginCapture. Differs: without its modes, no call of another
 * thread is refused that does not concern these streams. */
OPENREG_API orError_t orStreamBeginCapture(orStream_t stream);

/* All streams of the capture are again as before, also where this fails:
 * orErrorStreamCaptureInvalidated when it was broken, or when the work of
 * another stream was not joined, which `stream` does by waiting for an event.
 * Twin: cudaStreamEndCapture, cudaGraphInstantiate. */
OPENREG_API orError_t orStreamEndCapture(orStream_t stream, orGraph_t* graph);

/* The number of the capture that `stream` is in; 0 if there is none.
 * Twin: cudaStreamGetCaptureInfo. Differs: the number and nothing else. */
OPENREG_API uint64_t orStreamGetCapture(orStream_t stream);

/* Runs the graph's work in the order of `stream`, as one piece of work: at once
 * on this thread or later, as a kernel. Addresses and arguments are those of
 * the capture. Work of different branches runs one after another; launches of
 * one graph do not overlap.
 * Twin: cudaGraphLaunch. Differs: branches there run at the same time. */
OPENREG_API orError_t orGraphLaunch(orGraph_t graph, orStream_t stream);

/* Launches that are pending still run. The arguments of its work are released
 * with the last of them.
 * Twin: cudaGraphDestroy, cudaGraphExecDestroy. */
OPENREG_API orError_t orGraphDestroy(orGraph_t graph);

/* Writes the graph in the language of Graphviz: a node for each piece of work,
 * with its name and stream, and an edge from what it comes after.
 * orErrorInvalidValue when there is no writing to `path`.
 * Twin: cudaGraphDebugDotPrint. Differs: without its flags. */
OPENREG_API orError_t orGraphDebugDotPrint(orGraph_t graph, const char* path);
/* [/dev-graph] */

/* [dev-trace] A record of a trace: a piece of work, its phase and its time. */
typedef enum orTracePhase {
  orTraceLaunch = 0, /* on the thread that launches */
  orTraceStart = 1,  /* on the thread that runs the work */
  orTraceEnd = 2,
  orTraceReturn = 3, /* the call that launched or waited ends; not a turn's */
} orTracePhase;

/* What a record tells of. A launch of a graph is a piece of work whose start
 * and end enclose all records of its nodes, which are works of their own. */
typedef enum orTraceKind {
  orTraceKernel = 0,
  orTraceCopy = 1,
  orTraceSet = 2,
  orTraceHostFunc = 3,
  orTraceTurn = 4,  /* what a thread does between begin and end of its turn */
  orTraceWait = 5,  /* the host's: a launch and a return, and nothing runs */
  orTraceGraph = 6, /* a launch of a graph; its nodes have their own records */
} orTraceKind;

/* One moment of a piece of work, or of a wait. */
typedef struct orTraceRecord {
  orTracePhase phase;
  orTraceKind kind;
  const char* name; /* the launch's, turn's or waiting call's; as CUDA's tools
                       have it, "Memcpy HtoD (Pinned -> Device)" or
                       "Memset (Device)"; "host function" */
  int device;
  int thread;       /* that launched the work, or waits: its gettid() */
  uint64_t stream;  /* 0 for a default stream, or none that is waited for;
                       else a number of its own */
  size_t bytes;     /* of a copy or set, else 0 */
  uint64_t work;    /* the same in all records of one piece of work */
  uint64_t time_ns; /* of CLOCK_MONOTONIC */
} orTraceRecord;

/* Whoever listens. `user` is what orTraceSubscribe was given. */
typedef void (*orTraceFn)(const orTraceRecord* record, void* user);
/* [/dev-trace] */
/* A subscription, which lasts until orTraceUnsubscribe. */
typedef struct orSubscriber* orSubscriber_t;

/* [dev-trace-subscribe] A subscriber is called with each record. */
/* Calls fn(record, user) for all work that is launched from now on, in every
 * launch mode: each has a launch, a start and an end, in this order, and those
 * of one stream come in its order. Work that was dropped has only the first.
 * The return of a launch comes at any time after it. Waits of the host have a
 * launch and a return; those of a stream are its own business and have none.
 * A name is the launcher's choice; PyTorch's backend gives an operator's full
 * name, as the dispatcher prints it: "aten::add.Tensor", "aten::cumsum".
 * There may be several subscribers. Calls come from several threads, each on
 * the thread that launches or runs the work. `record` and its name are valid
 * during the call, from which launching, waiting, subscribing and
 * unsubscribing are orErrorNotPermitted.
 * Twin: cuptiSubscribe. Differs: CUPTI is a library of its own, has one
 * subscriber, and gives starts and ends as activity records in buffers. */
OPENREG_API orError_t
orTraceSubscribe(orSubscriber_t* subscriber, orTraceFn fn, void* user);

/* When it returns no call is under way any more, and none will come.
 * orErrorInvalidResourceHandle for who is no subscriber, or no longer.
 * Twin: cuptiUnsubscribe. */
OPENREG_API orError_t orTraceUnsubscribe(orSubscriber_t subscriber);

/* How many subscribe, for readers only, to be read as an atomic: a launcher
 * that would have to make a name looks here first.
 * Twin: none. Differs: CUDA's kernels have names in the binary. */
OPENREG_API extern int orTraceSubscribers;
/* [/dev-trace-subscribe] */

/* [dev-ipc] Memory that processes share. */
/* A block of device memory, for another process. Its pages are a part of a
 * file, so the file's descriptor is what must reach the other process, over a
 * Unix socket for instance. */
typedef struct orIpcMemHandle {
  int fd;        /* open while this process lives; not the caller's to close */
  size_t offset; /* of the block in the file, in bytes */
  size_t size;   /* of the block, as orMalloc was asked */
} orIpcMemHandle;

/* What another process needs to map the block that starts at `ptr`. That the
 * block is not freed while it is in use elsewhere is the caller's business.
 * orErrorInvalidDevicePointer when `ptr` is not the start of a live block,
 * orErrorInvalidValue when it is itself another process's memory.
 * Twin: cudaIpcGetMemHandle. Differs: that handle is opaque bytes, this one
 * names a descriptor that has to be sent. */
OPENREG_API orError_t orIpcGetMemHandle(orIpcMemHandle* handle, void* ptr);

/* Maps the block at addresses of the current device, which are used up as with
 * orMalloc; a block that is open there already keeps its addresses. What one
 * process writes, all see. `fd` may be closed afterwards, and the pages live
 * until the last process lets go of them. orErrorInvalidResourceHandle when
 * `fd` is no file, orErrorInvalidValue when the range is not in it,
 * orErrorMemoryAllocation when the device has no such range free.
 * Twin: cudaIpcOpenMemHandle. Differs: that refuses a block of the same
 * process. */
OPENREG_API orError_t
orIpcOpenMemHandle(void** ptr, const orIpcMemHandle* handle);

/* To be called once for each orIpcOpenMemHandle; waits for the device's work,
 * as orFree does. The last call gives the addresses back.
 * orErrorInvalidDevicePointer for all but what orIpcOpenMemHandle gave.
 * Twin: cudaIpcCloseMemHandle. */
OPENREG_API orError_t orIpcCloseMemHandle(void* ptr);
/* [/dev-ipc] */

/* Writes one line about a faulting address into `buffer`, NUL-terminated and
 * cut at `size` bytes: the device, the block and the likely mistake. Returns
 * the written length, or 0 when the address is not in the device range. Takes
 * no lock and allocates nothing, so a signal handler may call it: the one that
 * the first use of a device installs for SIGSEGV and SIGBUS does, and then
 * calls the handler that it found. OPENREG_SEGV_HANDLER=0 leaves it out.
 * Twin: none. Differs: a host that touches a GPU's memory gets the bare
 * signal. */
OPENREG_API size_t
orExplainFault(const void* address, char* buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
