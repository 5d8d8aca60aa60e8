#include "csrc/runtime/stream.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include <c10/core/DeviceGuard.h>

#include "csrc/runtime/wait.h"

namespace openreg {
namespace {

using c10::DeviceIndex, c10::Stream, c10::StreamId;

constexpr size_t max_devices = 16;
constexpr size_t pool_size = 32;  // for each priority

// [stream-id] What is encoded in a stream's id.
// 0 is the default stream. Odd numbers are the pool's: place and priority.
// All else is the handle of a stream that somebody else made; handles are
// even, because they are addresses.
constexpr StreamId pool_id(size_t place, bool high_priority) {
  return static_cast<StreamId>(place << 2 | high_priority << 1 | 1);
}
constexpr bool in_pool(StreamId id) {
  return (id & 1) != 0;
}
constexpr bool has_high_priority(StreamId id) {
  return (id & 2) != 0;
}
constexpr size_t place_of(StreamId id) {
  return static_cast<size_t>(id) >> 2;
}
// [/stream-id]

// [stream-pool] Streams are made when first handed out, and never destroyed.
struct Pool {
  std::mutex mutex;
  std::atomic<size_t> handed_out{0};
  std::array<std::atomic<orStream_t>, pool_size> streams{};

  orStream_t at(size_t place, int priority) {
    orStream_t stream = streams[place].load(std::memory_order_acquire);
    if (stream == nullptr) {
      const std::lock_guard lock(mutex);
      stream = streams[place];
      if (stream == nullptr) {
        OPENREG_CHECK(orStreamCreateWithPriority(&stream, priority));
        streams[place] = stream;
      }
    }
    return stream;
  }
};
// [/stream-pool]

// The streams of one device that this process knows by number.
struct DeviceStreams {
  orStream_t default_stream = nullptr;
  std::array<Pool, 2> pools;  // of normal and of high priority
};

DeviceStreams& streams_of(DeviceIndex device) {
  static auto* const all = [] {
    auto* streams = new std::vector<DeviceStreams>(device_count());
    for (size_t index = 0; index < streams->size(); ++index) {
      OPENREG_CHECK(orDeviceGetDefaultStream(
          &(*streams)[index].default_stream, static_cast<int>(index)));
    }
    return streams;
  }();
  return (*all)[device];
}

// [stream-current] Each thread has a current stream on every device.
struct Current {
  orStream_t handle = nullptr;  // NULL: nobody has asked yet
  StreamId id = 0;
};
constinit thread_local std::array<Current, max_devices> current{};
// [/stream-current]

Stream make_stream(DeviceIndex device, StreamId id) {
  return Stream(Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), id);
}

DeviceIndex resolve(DeviceIndex device) {
  const auto index = device == -1 ? current_device() : device;
  check_device(index);
  return index;
}

[[noreturn]] void raise_unknown(Stream stream) {
  TORCH_CHECK(
      false,
      "There is no stream ",
      stream.id(),
      " on ",
      stream.device(),
      ". Expected 0 (the default stream), or a stream that torch.Stream or "
      "torch.openreg.ExternalStream made in this process.");
}

// Only streams that were handed out exist.
orStream_t find_in_pool(Stream stream) {
  const StreamId id = stream.id();
  auto& pool = streams_of(stream.device_index()).pools[has_high_priority(id)];
  const orStream_t handle =
      place_of(id) < pool_size ? pool.streams[place_of(id)].load() : nullptr;
  if (handle == nullptr) {
    raise_unknown(stream);
  }
  return handle;
}

orStream_t find_external(Stream stream) {
  const auto handle = reinterpret_cast<orStream_t>(stream.id());
  int device = -1;
  if (orStreamGetDevice(handle, &device) != orSuccess ||
      device != stream.device_index()) {
    orGetLastError();  // answered here
    raise_unknown(stream);
  }
  return handle;
}

}  // namespace

// [stream-handle] From PyTorch's stream to the device's, checked on the way.
orStream_t handle_of(Stream stream) {
  TORCH_CHECK(
      stream.device_type() == c10::kPrivateUse1,
      "Expected a stream of an ",
      c10::Device(c10::kPrivateUse1),
      " device, but got one of ",
      stream.device(),
      ".");
  check_device(stream.device_index());
  if (stream.id() == 0) {
    return streams_of(stream.device_index()).default_stream;
  }
  return in_pool(stream.id()) ? find_in_pool(stream) : find_external(stream);
}
// [/stream-handle]

// [stream-get] Which stream a launch goes to.
orStream_t current_stream(DeviceIndex device) {
  orStream_t& handle = current[device].handle;
  if (C10_UNLIKELY(handle == nullptr)) {
    handle = streams_of(device).default_stream;
  }
  return handle;
}

Stream get_stream(DeviceIndex device) {
  const DeviceIndex index = resolve(device);
  return make_stream(index, current[index].id);
}
// [/stream-get]

// [stream-exchange] Sets the current stream and returns the one before.
Stream exchange_stream(Stream stream) {
  const orStream_t handle = handle_of(stream);
  const Stream previous = get_stream(stream.device_index());
  current[stream.device_index()] = {handle, stream.id()};
  return previous;
}
// [/stream-exchange]

Stream default_stream(DeviceIndex device) {
  return make_stream(resolve(device), 0);
}

// [stream-hand-out] Streams are handed out in turn, so that all are used alike.
Stream pool_stream(DeviceIndex device, int priority) {
  TORCH_CHECK(
      priority <= 0,
      "Expected a stream priority of 0 or below (lower numbers go first), but "
      "got ",
      priority,
      ".");
  const DeviceIndex index = resolve(device);
  const bool high_priority = priority < 0;
  Pool& pool = streams_of(index).pools[high_priority];
  const size_t place = pool.handed_out++ % pool_size;
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, index));
  pool.at(place, high_priority ? -1 : 0);
  return make_stream(index, pool_id(place, high_priority));
}
// [/stream-hand-out]

Stream external_stream(DeviceIndex device, orStream_t handle) {
  const Stream usual = default_stream(device);
  if (handle == nullptr || handle == handle_of(usual)) {
    return usual;
  }
  const auto id = static_cast<StreamId>(reinterpret_cast<intptr_t>(handle));
  const Stream stream = make_stream(usual.device_index(), id);
  handle_of(stream);
  return stream;
}

int stream_priority(Stream stream) {
  int priority = 0;
  OPENREG_CHECK(orStreamGetPriority(handle_of(stream), &priority));
  return priority;
}

void synchronize_stream(Stream stream) {
  const orStream_t handle = handle_of(stream);
  OPENREG_CHECK_WAIT(orStreamSynchronize(handle));
}

}  // namespace openreg
