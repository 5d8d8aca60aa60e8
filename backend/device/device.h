#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "device/config.h"
#include "device/error.h"
#include "device/memory.h"
#include "device/share.h"
#include "device/stream.h"

// All devices, and how a call finds what it is about. All state is allocated
// once and leaks on purpose: a thread may still run when destructors do.

namespace emulator {

orError_t refuse_handle(const void* handle, const char* kind);

// A handle is a number that is never used twice.
// It is looked up and not followed, so a stale or foreign one is refused.
template <typename T>
class Handles {
 public:
  Handles(const char* kind, uintptr_t base) : kind_(kind), base_(base) {}

  template <typename Fill>
  T* add(Fill&& fill) {
    const std::unique_lock lock(mutex_);
    const auto handle = reinterpret_cast<T*>(base_ + 16 * (count_ + 1));
    auto object = std::make_shared<T>();
    fill(object.get(), handle);
    table_.emplace(handle, std::move(object));
    ++count_;
    return handle;
  }
  // Before the first is added no lock may be held: a child forked then would
  // wait for it forever.
  Result<std::shared_ptr<T>> find(T* handle) const {
    if (count_ != 0) {
      const std::shared_lock lock(mutex_);
      const auto entry = table_.find(handle);
      if (entry != table_.end()) {
        return entry->second;
      }
    }
    return report_stale(handle);
  }
  orError_t report_stale(const T* handle) const {
    return refuse_handle(handle, kind_);
  }
  // The object outlives its handle where somebody still uses it.
  auto remove(T* handle) {
    const std::unique_lock lock(mutex_);
    return table_.extract(handle);
  }
  template <typename Visit>
  void each(Visit&& visit) const {
    if (count_ != 0) {  // as in find
      const std::shared_lock lock(mutex_);
      for (const auto& entry : table_) {
        visit(entry.second);
      }
    }
  }

 private:
  const char* const kind_;
  const uintptr_t base_;
  std::atomic<size_t> count_{0};  // of all that were ever added
  mutable std::shared_mutex mutex_;
  std::unordered_map<T*, std::shared_ptr<T>> table_;
};

struct Machine;

// [dev-device] One device: its part of the address space, and its blocks.
struct Device {
  Machine* machine = nullptr;
  int index = 0;
  uintptr_t base = 0;
  int memory = -1;  // the memfd behind the kernel range
  orStream default_stream;
  Failure failure;
  mutable std::shared_mutex mutex;  // guards all below but the list's links
  Blocks<Record*> live;
  std::map<uintptr_t, Import> imports;  // the live blocks of other devices
  std::map<uintptr_t, size_t> gaps;     // what is free: start and bytes
  std::vector<Record*> spare;           // records of freed blocks
  size_t free_bytes = 0;
  std::atomic<Record*> records{nullptr};
};
// [/dev-device]

// All devices. What a device is can be answered without any address; `open`
// turns true when one is first used, which a forked child must not share.
struct Machine {
  Config config;
  Device devices[kMaxDevices];
  std::shared_mutex pinned_mutex;
  Blocks<Block> pinned;
  Handles<orStream> streams{"a stream", 0x57EA000000000000};
  Handles<orEvent> events{"an event", 0xE7E2000000000000};
  Handles<orGraph> graphs{"a graph", 0x62A9000000000000};
  std::shared_mutex tracing_mutex;
  std::vector<orSubscriber> subscribers;
  std::atomic<bool> open{false};
};

extern std::atomic<Machine*> ready_machine;

Result<Machine*> start_machine();
orError_t open_machine(Machine* machine);

// [dev-machine] Every call begins with this; once ready, it costs one load.
inline Result<Machine*> get_machine() {
  Machine* const machine = ready_machine.load(std::memory_order_acquire);
  return machine != nullptr ? machine : start_machine();
}

// As above, for the calls that use a device rather than describe it.
inline Result<Machine*> use_machine() {
  const Result<Machine*> machine = get_machine();
  if (!machine || machine->open.load(std::memory_order_acquire)) {
    return machine;
  }
  const orError_t error = open_machine(machine.value());
  return error == orSuccess ? machine : error;
}
// [/dev-machine]

// As get_machine(), for the calls that the device's own work must not make.
Result<Machine*> enter(const char* call);

// Whether an ancestor of this process had used the device when it forked.
bool is_forked();

// An index is checked in one place.
orError_t refuse_device(const Machine& machine, int index);

inline Result<Device*> find_device(Result<Machine*> machine, int index) {
  if (!machine) {
    return machine.error();
  }
  if (0 <= index && index < machine->config.device_count) [[likely]] {
    return &machine->devices[index];
  }
  return refuse_device(*machine, index);
}

inline Result<Device*> current_device(Result<Machine*> machine) {
  return find_device(machine, this_thread.device);
}

inline orError_t check_device(const Device& device) {
  const char* const sentence = device.failure.sentence.load();
  return sentence == nullptr ? orSuccess : report_failure(device, sentence);
}

inline bool is_default_stream(const Machine& machine, orStream_t handle) {
  for (int index = 0; index < machine.config.device_count; ++index) {
    if (handle == &machine.devices[index].default_stream) {
      return true;
    }
  }
  return false;
}

Result<StreamRef> find_created_stream(
    Machine* machine, orStream_t handle, bool destroyed_too);

// A stream by its handle, NULL being the current device's default. Default
// streams are compared with, the others looked up.
inline Result<StreamRef> find_stream(
    Result<Machine*> machine, orStream_t handle, bool destroyed_too = false) {
  if (!machine || machine->config.device_count == 0) [[unlikely]] {
    return current_device(machine).error();
  }
  if (handle == nullptr) [[likely]] {
    handle = &machine->devices[this_thread.device].default_stream;
  } else if (!is_default_stream(*machine, handle)) {
    return find_created_stream(machine.value(), handle, destroyed_too);
  }
  return StreamRef(StreamRef(), handle);
}

// [dev-with-stream] Every call that launches or waits begins with this.
// It must not come from inside the device's own work, and the device must not
// have failed.
template <typename Call>
orError_t with_stream(
    const char* name,
    Result<Machine*> machine,
    orStream_t handle,
    Call&& call) {
  const Result<StreamRef> stream = find_stream(machine, handle);
  if (!stream) {
    return stream.error();
  }
  if (const orError_t error = check_outside(name)) {
    return error;
  }
  if (const orError_t error = check_device(*stream->device)) {
    return error;
  }
  return guarded(name, [&] { return call(stream.value()); });
}
// [/dev-with-stream]

}  // namespace emulator
