#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "device/device.h"
#include "device/fault.h"

// How the machine comes to be: numbers at the first call, addresses and memory
// at the first use, and nothing at all in a process forked after that.

namespace emulator {

std::atomic<Machine*> ready_machine{nullptr};

namespace {

std::mutex start_mutex;
std::atomic<bool> forked{false};

// [dev-refuse-addresses] The error that says what is missing, and two ways out.
orError_t refuse_addresses(const Config& config, const char* reason) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  const std::string most = limit.rlim_cur == RLIM_INFINITY
                               ? "unlimited"
                               : std::to_string(limit.rlim_cur / 1024) + " KiB";
  return fail(
      orErrorInitializationError,
      "cannot reserve %zu bytes of addresses, twice the memory of %d devices "
      "of %zu bytes: %s; ulimit -v is %s. Raise that limit, or set "
      "OPENREG_DEVICE_MEMORY to fewer bytes",
      2 * config.device_count * config.capacity,
      config.device_count,
      config.capacity,
      reason,
      most.c_str());
}
// [/dev-refuse-addresses]

// [dev-reserve] Reserves addresses without memory, so any access fails.
// The device range is the lower half and stays as it is. The kernel range is
// the upper half, over which open_machine maps the devices' memory.
orError_t reserve_addresses(Machine* machine) {
  const Config& config = machine->config;
  orAddressSpace& space = orReservedAddresses;
  const size_t bytes = config.device_count * config.capacity;
  if (bytes == space.device_bytes) {
    return orSuccess;  // before, or there are no devices
  }
  void* const start = mmap(
      nullptr,
      2 * bytes,
      PROT_NONE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
      -1,
      0);
  if (start == MAP_FAILED) {
    return refuse_addresses(config, std::strerror(errno));
  }
  const auto base = reinterpret_cast<uintptr_t>(start);
  for (int index = 0; index < config.device_count; ++index) {
    Device& device = machine->devices[index];
    device.base = base + index * config.capacity;
    device.gaps.emplace(device.base, config.capacity);
  }
  space.device_capacity = config.capacity;
  space.kernel_offset = static_cast<ptrdiff_t>(bytes);
  std::atomic_ref(space.device_base).store(base, std::memory_order_relaxed);
  std::atomic_ref(space.device_bytes).store(bytes, std::memory_order_release);
  return orSuccess;
}
// [/dev-reserve]

// [dev-map-memory] A device's memory is a file without a name.
bool map_memory(Device* device) {
  const size_t capacity = device->machine->config.capacity;
  char name[32];
  std::snprintf(name, sizeof(name), "openreg-device-%d", device->index);
  device->memory = memfd_create(name, MFD_CLOEXEC);
  return device->memory >= 0 && ftruncate(device->memory, capacity) == 0 &&
         map_pages(device->base, capacity, device->memory, 0);
}
// [/dev-map-memory]

void close_memory(Machine* machine) {
  for (Device& device : machine->devices) {
    if (device.memory >= 0) {
      close(device.memory);
      device.memory = -1;
    }
  }
}

Machine* make_machine(const Config& config) {
  Machine* const machine = new Machine;
  machine->config = config;
  // Also those beyond the count, which stay idle and empty.
  for (int index = 0; index < kMaxDevices; ++index) {
    Device& device = machine->devices[index];
    device.machine = machine;
    device.index = index;
    device.default_stream.device = &device;
    device.free_bytes = config.capacity;
  }
  return machine;
}

// [dev-fork] A fork waits for initialization, then disables the child.
void before_fork() {
  start_mutex.lock();
}

void after_fork_in_parent() {
  start_mutex.unlock();
}

// Memory that the parent only reserved is the child's to open for itself.
void after_fork_in_child() {
  Machine* const machine = ready_machine.load();
  if (machine != nullptr && machine->open) {
    close_memory(machine);
    forked = true;
    ready_machine = nullptr;
  }
  start_mutex.unlock();
}

const int fork_hooks =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
// [/dev-fork]

}  // namespace

bool is_forked() {
  return forked.load(std::memory_order_relaxed);
}

// The first call of the process starts the machine.
Result<Machine*> start_machine() {
  const std::lock_guard lock(start_mutex);
  if (forked) {
    return fail(
        orErrorForkedProcess,
        "this process was forked from one that had used the device; start it "
        "with 'spawn' instead: multiprocessing.set_start_method('spawn')");
  }
  static const Config& config = *new Config(read_config());
  if (!config.problem.empty()) {
    return fail(orErrorInvalidConfiguration, "%s", config.problem.c_str());
  }
  if (ready_machine == nullptr) {
    launch_mode = config.launch;
    ready_machine = make_machine(config);
  }
  return ready_machine.load();
}

// [dev-open] The first use of a device maps the memory of all.
orError_t open_machine(Machine* machine) {
  const std::lock_guard lock(start_mutex);
  if (const Result<Device*> device = current_device(machine); !device) {
    return device.error();  // there are none
  }
  if (machine->open) {
    return orSuccess;  // by another thread, a moment ago
  }
  if (const orError_t error = reserve_addresses(machine)) {
    return error;
  }
  const int count = machine->config.device_count;
  const orAddressSpace& space = orReservedAddresses;
  // The device range; map_pages() sees to the kernel range.
  bool done = keep_private(space.device_base, space.device_bytes);
  for (int index = 0; index < count; ++index) {
    done = done && map_memory(&machine->devices[index]);
  }
  if (!done) {
    const char* const reason = std::strerror(errno);
    close_memory(machine);
    return fail(
        orErrorInitializationError,
        "cannot map the memory of %d devices: %s",
        count,
        reason);
  }
  if (machine->config.explain_faults) {
    install_fault_handler();
  }
  machine->open = true;
  return orSuccess;
}
// [/dev-open]

orError_t refuse_device(const Machine& machine, int index) {
  const int count = machine.config.device_count;
  if (count == 0) {
    return fail(
        orErrorInvalidDevice, "there are no devices: OPENREG_DEVICE_COUNT=0");
  }
  return fail(
      orErrorInvalidDevice,
      "device %d is out of range; expected 0 to %d",
      index,
      count - 1);
}

orError_t refuse_handle(const void* handle, const char* kind) {
  return fail(
      orErrorInvalidResourceHandle,
      "%p is not %s, or was destroyed",
      handle,
      kind);
}

Result<Machine*> enter(const char* call) {
  const Result<Machine*> machine = get_machine();
  const orError_t error = machine ? check_outside(call) : machine.error();
  return error == orSuccess ? machine : error;
}

}  // namespace emulator

using namespace emulator;

orAddressSpace orReservedAddresses;

orError_t orGetDeviceCount(int* count) {
  if (count == nullptr) {
    return fail(orErrorInvalidValue, "orGetDeviceCount: count is NULL");
  }
  const Result<Machine*> machine = get_machine();
  if (machine) {
    *count = machine->config.device_count;
  }
  return machine.error();
}

// [dev-set-device] The current device is a number that each thread keeps.
orError_t orSetDevice(int device) {
  const Result<Device*> found = find_device(get_machine(), device);
  if (found) {
    this_thread.device = device;
  }
  return found.error();
}

orError_t orGetDevice(int* device) {
  if (device == nullptr) {
    return fail(orErrorInvalidValue, "orGetDevice: device is NULL");
  }
  const Result<Device*> current = current_device(get_machine());
  if (!current) {
    return current.error();
  }
  *device = current->index;
  return orSuccess;
}
// [/dev-set-device]

orError_t orGetDeviceProperties(orDeviceProp* prop, int device) {
  if (prop == nullptr) {
    return fail(orErrorInvalidValue, "orGetDeviceProperties: prop is NULL");
  }
  const Result<Device*> found = find_device(get_machine(), device);
  if (!found) {
    return found.error();
  }
  cpu_set_t cpus[8] = {};  // as many as Linux can have
  sched_getaffinity(0, sizeof(cpus), cpus);
  *prop = {};
  std::snprintf(prop->name, sizeof(prop->name), "OpenReg");
  prop->total_memory = found->machine->config.capacity;
  prop->major = 1;
  prop->minor = 0;
  prop->multi_processor_count = CPU_COUNT_S(sizeof(cpus), cpus);
  return orSuccess;
}

orError_t orDeviceSynchronize(void) {
  const Result<Device*> device = current_device(enter("orDeviceSynchronize"));
  if (!device) {
    return device.error();
  }
  if (const orError_t error = check_device(*device)) {
    return error;
  }
  Label label{orTraceWait, "orDeviceSynchronize"};
  const Announced announced(device->default_stream, &label);
  return guarded("orDeviceSynchronize", [&] {
    if (const orError_t error =
            check_not_captured(device.value(), "orDeviceSynchronize")) {
      return error;
    }
    wait_for_device(device.value());
    return check_device(*device);
  });
}

// [dev-reset] While it is reset, a device counts as failed.
// While it lasts nothing is launched, and what is queued is dropped.
orError_t orDeviceReset(void) {
  const Result<Device*> device = current_device(enter("orDeviceReset"));
  if (!device) {
    return device.error();
  }
  return guarded("orDeviceReset", [&] {
    for (const StreamRef& stream : streams_of(device.value())) {
      if (holds(*stream)) {
        return fail(
            orErrorNotPermitted,
            "orDeviceReset: this thread holds a turn on a stream of device "
            "%d; end it first",
            device->index);
      }
    }
    if (const orError_t error =
            check_not_captured(device.value(), "orDeviceReset")) {
      return error;
    }
    const std::lock_guard lock(device->failure.reset_mutex);
    set_failure(device.value(), "it is being reset");
    wait_for_device(device.value());
    device->failure.sentence = nullptr;
    return orSuccess;
  });
}
// [/dev-reset]

orError_t orGetAddressSpace(orAddressSpace* space) {
  if (space == nullptr) {
    return fail(orErrorInvalidValue, "orGetAddressSpace: space is NULL");
  }
  const Result<Machine*> machine = get_machine();
  if (!machine) {
    return machine.error();
  }
  const std::lock_guard lock(start_mutex);
  if (const orError_t error = reserve_addresses(machine.value())) {
    return error;
  }
  *space = orReservedAddresses;
  return orSuccess;
}
