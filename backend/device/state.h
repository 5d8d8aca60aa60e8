#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/openreg.h"
#include "device/work.h"

// What the files of libopenreg.so share. Nothing here leaves the library.
// All state is allocated once and leaks on purpose: a thread may still run
// when the process's destructors do.

namespace openreg {

inline constexpr int kMaxDevices = 16;

// What the environment may say, and what holds when it does not.
struct Config {
  int device_count = 2;               // OPENREG_DEVICE_COUNT
  size_t capacity = size_t{4} << 30;  // OPENREG_DEVICE_MEMORY, whole pages
  Launch launch = Launch::kAuto;      // OPENREG_LAUNCH
  bool explain_faults = true;         // OPENREG_SEGV_HANDLER
  size_t page = 0;                    // of the system
  std::string problem;                // empty unless a value is malformed
};

Config read_config();

// [dev-record] A live block, as a signal handler can read it.
// Records form a list that only grows; a freed block leaves base 0 behind and
// its record serves a later block. So no reader ever needs a lock.
struct Record {
  std::atomic<uintptr_t> base{0};
  std::atomic<size_t> size{0};  // as requested, not rounded
  Record* next = nullptr;
};
// [/dev-record]

// Pages of a device's memory that orIpcOpenMemHandle mapped: which file they
// are of, and how often they were opened. Most often it is another process's.
struct Import {
  dev_t file_system;
  ino_t file;
  size_t offset;
  size_t size;
  int uses;
};

// [dev-device] One device: its part of the address space, and its blocks.
struct Device {
  int index = 0;
  uintptr_t base = 0;
  int memory = -1;  // the memfd behind the kernel range
  orStream default_stream;
  Failure failure;
  mutable std::shared_mutex mutex;  // guards all below but the list's links
  std::map<uintptr_t, Record*> live;
  std::map<uintptr_t, Import> imports;  // the live blocks of other devices
  std::map<uintptr_t, size_t> gaps;     // what is free: start and bytes
  std::vector<Record*> spare;           // records of freed blocks
  size_t free_bytes = 0;
  std::atomic<Record*> records{nullptr};
};
// [/dev-device]

struct PinnedBlock {
  size_t size;
  int device;  // that was current
};

// What a look-up finds.
struct Block {
  orMemoryType type = orMemoryTypeUnregistered;
  int device = -1;
  uintptr_t base = 0;  // 0: there is none
  size_t size = 0;
};

// All devices. What a device is can be answered without any address; `open`
// turns true when one is first used, which a forked child must not share.
struct Machine {
  Config config;
  Device devices[kMaxDevices];
  std::shared_mutex pinned_mutex;
  std::map<uintptr_t, PinnedBlock> pinned;
  Handles<orStream> streams{0x57EA000000000000};
  Handles<orEvent> events{0xE7E2000000000000};
  std::shared_mutex tracing_mutex;
  std::vector<orSubscriber> subscribers;
  std::atomic<bool> open{false};
};

extern std::atomic<Machine*> ready_machine;

Machine* start_machine();
orError_t open_machine(Machine* machine);

// [dev-machine] The way into every call costs one load once it has succeeded.
// NULL when there is no machine to be had; fail() has been called then.
inline Machine* get_machine() {
  Machine* const machine = ready_machine.load(std::memory_order_acquire);
  return machine != nullptr ? machine : start_machine();
}

// As above, for the calls that use a device rather than describe it.
inline Machine* use_machine() {
  Machine* const machine = get_machine();
  if (machine == nullptr || machine->open.load(std::memory_order_acquire)) {
    return machine;
  }
  return open_machine(machine) == orSuccess ? machine : nullptr;
}
// [/dev-machine]

// The default stream that a handle means, or NULL.
inline orStream* find_default_stream(Machine* machine, orStream_t handle) {
  const int count = machine == nullptr ? 0 : machine->config.device_count;
  if (handle == nullptr) {
    const int index = this_thread.device;
    return 0 <= index && index < count ? &machine->devices[index].default_stream
                                       : nullptr;
  }
  for (int index = 0; index < count; ++index) {
    if (handle == &machine->devices[index].default_stream) {
      return handle;
    }
  }
  return nullptr;
}

// Whether an ancestor of this process had used the device when it forked.
bool is_forked();

// The device, or NULL after fail() when `index` is out of range.
Device* find_device(Machine* machine, int index);

// A live block at free addresses of `device`, whose mutex the caller holds.
// `base` 0 after fail() when no gap is large enough.
uintptr_t add_block(const Machine* machine, Device* device, size_t size);

// The reverse; what the addresses lead to is the caller's business.
void remove_block(const Machine* machine, Device* device, uintptr_t base);

size_t round_to_page(const Machine* machine, size_t bytes);

// CLOCK_MONOTONIC in nanoseconds.
uint64_t now();

// Makes a device fail, unless it has already.
void set_failure(Device* device, const char* sentence);

// orErrorDeviceFailed where queued work has failed.
orError_t report_failure(const Device& device, const char* sentence);

inline orError_t check_device(const Device& device) {
  const char* const sentence = device.failure.sentence.load();
  return sentence == nullptr ? orSuccess : report_failure(device, sentence);
}

// What a call that launches or waits asks of its stream.
// It must not come from inside the device's own work, and the device must not
// have failed. Empty after fail().
StreamRef enter_any_stream(
    Machine* machine, const char* call, orStream_t handle);

inline StreamRef enter_stream(
    Machine* machine, const char* call, orStream_t handle) {
  orStream* const stream = find_default_stream(machine, handle);
  if (stream != nullptr && this_thread.inside == nullptr &&
      stream->device->failure.sentence.load() == nullptr) [[likely]] {
    return StreamRef(StreamRef(), stream);
  }
  return enter_any_stream(machine, call, handle);
}

// Waits for what may use memory that a call takes back; not permitted inside
// the device's own work.
orError_t settle_device(Machine* machine, Device* device, const char* call);

// The block of device or pinned memory that `address` points into.
Block find_block(Machine* machine, const void* address);

inline uintptr_t to_integer(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

// [dev-owner] The address alone says whose it is.
// Another thread may be reserving the ranges: what is written last, the size,
// is read first, and while that is 0 no address is a device's.
inline bool in_device_range(const void* address) {
  orAddressSpace& space = orReservedAddresses;
  const std::atomic_ref base(space.device_base), bytes(space.device_bytes);
  const size_t size = bytes.load(std::memory_order_acquire);
  return to_integer(address) - base.load(std::memory_order_relaxed) < size;
}

// Of an address in the device range.
template <typename M>
auto* owner_of(M* machine, const void* address) {
  const auto offset = to_integer(address) - orReservedAddresses.device_base;
  return &machine->devices[offset / machine->config.capacity];
}
// [/dev-owner]

void install_fault_handler();

}  // namespace openreg
