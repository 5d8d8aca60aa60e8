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

// A handle is a number that is never used twice.
// It is looked up and not followed, so a stale or foreign one is refused.
template <typename T>
class Handles {
 public:
  explicit Handles(uintptr_t base) : next_(base) {}

  template <typename Fill>
  T* add(Fill&& fill) {
    const std::unique_lock lock(mutex_);
    const auto handle = reinterpret_cast<T*>(next_ + 16);
    auto object = std::make_shared<T>();
    fill(object.get(), handle);
    table_.emplace(handle, std::move(object));
    next_ += 16;
    return handle;
  }
  std::shared_ptr<T> find(const T* handle) const {
    const std::shared_lock lock(mutex_);
    const auto entry = table_.find(handle);
    return entry == table_.end() ? nullptr : entry->second;
  }
  // The object outlives its handle where somebody still uses it.
  std::shared_ptr<T> remove(const T* handle) {
    const std::unique_lock lock(mutex_);
    const auto entry = table_.extract(handle);
    return entry.empty() ? nullptr : std::move(entry.mapped());
  }
  template <typename Visit>
  void each(Visit&& visit) const {
    const std::shared_lock lock(mutex_);
    for (const auto& entry : table_) {
      visit(entry.second);
    }
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const T*, std::shared_ptr<T>> table_;
  uintptr_t next_;
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
  std::map<uintptr_t, Record*> live;
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
  std::map<uintptr_t, PinnedBlock> pinned;
  Handles<orStream> streams{0x57EA000000000000};
  Handles<orEvent> events{0xE7E2000000000000};
  Handles<orGraph> graphs{0x62A9000000000000};
  std::shared_mutex tracing_mutex;
  std::vector<orSubscriber> subscribers;
  std::atomic<bool> open{false};
};

extern std::atomic<Machine*> ready_machine;

Result<Machine*> start_machine();
orError_t open_machine(Machine* machine);

// [dev-machine] The way into every call costs one load once it has succeeded.
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

// The default stream that a handle means, or NULL.
inline orStream* find_default_stream(Machine* machine, orStream_t handle) {
  const int count = machine->config.device_count;
  if (handle == nullptr) {
    return count == 0 ? nullptr
                      : &machine->devices[this_thread.device].default_stream;
  }
  for (int index = 0; index < count; ++index) {
    if (handle == &machine->devices[index].default_stream) {
      return handle;
    }
  }
  return nullptr;
}

// One that is no default stream.
Result<StreamRef> find_created_stream(
    Machine* machine, orStream_t handle, bool destroyed_too);

// A stream by its handle, NULL being the current device's default.
inline Result<StreamRef> find_stream(
    Result<Machine*> machine, orStream_t handle, bool destroyed_too = false) {
  if (!machine) {
    return machine.error();
  }
  orStream* const stream = find_default_stream(machine.value(), handle);
  if (stream != nullptr) [[likely]] {
    return StreamRef(StreamRef(), stream);
  }
  return find_created_stream(machine.value(), handle, destroyed_too);
}

// What a call that launches or waits asks of its stream.
// It must not come from inside the device's own work, and the device must not
// have failed.
inline orError_t check_entry(const char* call, const orStream& stream) {
  const orError_t error = check_outside(call);
  return error == orSuccess ? check_device(*stream.device) : error;
}

Result<StreamRef> enter_created_stream(
    Machine* machine, const char* call, orStream_t handle);

inline Result<StreamRef> enter_stream(
    Result<Machine*> machine, const char* call, orStream_t handle) {
  if (!machine) {
    return machine.error();
  }
  orStream* const stream = find_default_stream(machine.value(), handle);
  if (stream == nullptr) [[unlikely]] {
    return enter_created_stream(machine.value(), call, handle);
  }
  const orError_t error = check_entry(call, *stream);
  return error == orSuccess ? StreamRef(StreamRef(), stream)
                            : Result<StreamRef>(error);
}

}  // namespace emulator
