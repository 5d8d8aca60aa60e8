#include <cstring>
#include <memory>
#include <utility>

#include "device/launch.h"

// Copies between host and devices, and filling. Everything that can be refused
// is refused before the first byte moves.

namespace emulator {

namespace {

// [dev-check-range] A range must end where its block ends, or before.
// Ordinary host memory is in no block: its bounds are the host's business.
orError_t check_range(
    Machine* machine,
    const char* role,
    const void* address,
    size_t count,
    Block* found) {
  const Block block = *found = find_block(machine, address);
  if (block.base == 0) {
    if (!in_device_range(address)) {
      return orSuccess;
    }
    return fail(
        orErrorInvalidDevicePointer,
        "%s %p is in no live block of device memory; was it freed?",
        role,
        address);
  }
  const size_t rest = block.base + block.size - to_integer(address);
  if (count <= rest) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidValue,
      "%s %p: %zu bytes pass the end of its block; expected at most %zu",
      role,
      address,
      count,
      rest);
}
// [/dev-check-range]

// The kind of a copy must fit both pointers.
orError_t check_side(
    const char* role, const void* address, bool expect_device) {
  if (in_device_range(address) == expect_device) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidMemcpyDirection,
      "%s %p is %s memory, but the kind expects %s memory",
      role,
      address,
      expect_device ? "host" : "device",
      expect_device ? "device" : "host");
}

orError_t check_owner(
    Machine* machine, const char* role, const void* address, int index) {
  if (in_device_range(address) && owner_of(machine, address)->index == index) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidDevicePointer,
      "%s %p is not memory of device %d",
      role,
      address,
      index);
}

// [dev-copy] The copy engine looks where a kernel would.
void* reach(const void* address) {
  const ptrdiff_t offset =
      in_device_range(address) ? orReservedAddresses.kernel_offset : 0;
  return reinterpret_cast<void*>(to_integer(address) + offset);
}

// The ranges may overlap.
struct Copy {
  void* dst;
  const void* src;
  size_t count;
  std::unique_ptr<char[]> staged;  // what src was, where src is NULL

  static constexpr orTraceKind kKind = orTraceCopy;
  static constexpr const char* kName = "copy";

  void operator()() const {
    if (count == 0) {
      return;  // whatever the pointers
    }
    std::memmove(dst, staged ? staged.get() : src, count);
  }
};
// [/dev-copy]

struct Fill {
  void* dst;
  int value;
  size_t count;

  static constexpr orTraceKind kKind = orTraceSet;
  static constexpr const char* kName = "set";

  void operator()() const {
    if (count == 0) {
      return;
    }
    std::memset(dst, value, count);
  }
};

// A copy that runs here needs nothing from the heap.
// Else it moves there, and `stage` sees to what the caller may change.
template <typename Task, typename Stage>
orError_t launch_task(
    const StreamRef& stream, Task&& task, bool must, Stage&& stage) {
  if (stream == nullptr) {
    task();
    return orSuccess;
  }
  const auto body = [&] {
    task();
    return orSuccess;
  };
  Label label{Task::kKind, Task::kName, task.count};
  return launch(stream, label, must, body, [&] {
    stage(&task);
    const auto run = [](void* args) {
      (*static_cast<Task*>(args))();
      return orSuccess;
    };
    const auto release = [](void* args) { delete static_cast<Task*>(args); };
    Arguments args(new Task(std::move(task)), release);
    return Work{label, run, nullptr, std::move(args)};
  });
}

// What a copy or set was found to be about, once nothing can be refused.
struct Ends {
  Block dst;
  Block src;
};

// Pageable memory is the host's alone: nobody reads it later than promised,
// and nobody writes it behind the host's back.
bool is_pageable(const Block& block) {
  return block.type == orMemoryTypeUnregistered;
}

orError_t check_ranges(
    Machine* machine,
    const void* dst,
    const void* src,
    size_t count,
    Ends* ends) {
  if (check_range(machine, "dst", dst, count, &ends->dst) != orSuccess ||
      check_range(machine, "src", src, count, &ends->src) != orSuccess) {
    return orPeekAtLastError();
  }
  return orSuccess;
}

// [dev-memcpy] In a kind's number, bit 0 puts dst on a device, bit 1 src.
orError_t check_copy(
    Machine* machine,
    const char* call,
    void* dst,
    const void* src,
    size_t count,
    orMemcpyKind kind,
    Ends* ends) {
  const unsigned number = static_cast<unsigned>(kind);
  if (number > orMemcpyDefault) {
    return fail(
        orErrorInvalidMemcpyDirection,
        "%s: kind is %u; expected 0 to 4",
        call,
        number);
  }
  if (count == 0) {
    return orSuccess;
  }
  if (dst == nullptr || src == nullptr) {
    return fail(orErrorInvalidValue, "%s: dst or src is NULL", call);
  }
  if (kind != orMemcpyDefault &&
      (check_side("dst", dst, number & 1) != orSuccess ||
       check_side("src", src, number & 2) != orSuccess)) {
    return orPeekAtLastError();
  }
  return check_ranges(machine, dst, src, count, ends);
}
// [/dev-memcpy]

orError_t check_peer_copy(
    Machine* machine,
    const char* call,
    void* dst,
    int dst_device,
    const void* src,
    int src_device,
    size_t count,
    Ends* ends) {
  if (find_device(machine, dst_device) == nullptr ||
      find_device(machine, src_device) == nullptr) {
    return orPeekAtLastError();
  }
  if (count == 0) {
    return orSuccess;
  }
  if (dst == nullptr || src == nullptr) {
    return fail(orErrorInvalidValue, "%s: dst or src is NULL", call);
  }
  if (check_owner(machine, "dst", dst, dst_device) != orSuccess ||
      check_owner(machine, "src", src, src_device) != orSuccess) {
    return orPeekAtLastError();
  }
  return check_ranges(machine, dst, src, count, ends);
}

orError_t check_set(
    Machine* machine, const char* call, void* ptr, size_t count, Ends* ends) {
  if (count == 0) {
    return orSuccess;
  }
  if (ptr == nullptr) {
    return fail(orErrorInvalidValue, "%s: ptr is NULL", call);
  }
  if (!in_device_range(ptr)) {
    return fail(
        orErrorInvalidDevicePointer,
        "%s: %p is not device memory; the host can set its own",
        call,
        ptr);
  }
  return check_range(machine, "ptr", ptr, count, &ends->dst);
}

// [dev-launch-copy] Copies keep their promises about pageable memory.
// A copy into it has been made when the call returns; of one out of it, at
// least the source has been read.
orError_t launch_copy(
    const StreamRef& stream,
    void* dst,
    const void* src,
    size_t count,
    const Ends& ends,
    bool wait) {
  const auto stage = [&](Copy* copy) {
    if (is_pageable(ends.src)) {
      copy->staged.reset(new char[count]);
      std::memcpy(copy->staged.get(), src, count);
    }
  };
  return launch_task(
      stream,
      Copy{reach(dst), reach(src), count, nullptr},
      wait || is_pageable(ends.dst),
      stage);
}
// [/dev-launch-copy]

// Copies in the order of `handle`, or of a default stream and then at once.
struct Order {
  const char* call;
  bool wait;
  orStream_t handle;
};

// Between pageable memory alone, or of no byte, a copy is no device's.
template <typename Launch>
orError_t in_order(
    Machine* machine,
    Order order,
    size_t count,
    const Ends& ends,
    Launch&& launch) {
  if (order.wait) {
    const int owner = ends.dst.device >= 0 ? ends.dst.device : ends.src.device;
    if (owner < 0) {
      return launch(nullptr);
    }
    order.handle = &machine->devices[owner].default_stream;
  }
  const StreamRef stream = enter_stream(machine, order.call, order.handle);
  if (stream == nullptr || count == 0) {
    return stream == nullptr ? orPeekAtLastError() : orSuccess;
  }
  return guarded(order.call, [&] { return launch(stream); });
}

orError_t copy(
    Order order, void* dst, const void* src, size_t count, orMemcpyKind kind) {
  Machine* const machine = get_machine();
  Ends ends;
  if (machine == nullptr ||
      check_copy(machine, order.call, dst, src, count, kind, &ends) !=
          orSuccess) {
    return orPeekAtLastError();
  }
  return in_order(machine, order, count, ends, [&](const StreamRef& stream) {
    return launch_copy(stream, dst, src, count, ends, order.wait);
  });
}

orError_t peer_copy(
    Order order,
    void* dst,
    int dst_device,
    const void* src,
    int src_device,
    size_t count) {
  Machine* const machine = get_machine();
  Ends ends;
  if (machine == nullptr || check_peer_copy(
                                machine,
                                order.call,
                                dst,
                                dst_device,
                                src,
                                src_device,
                                count,
                                &ends) != orSuccess) {
    return orPeekAtLastError();
  }
  return in_order(machine, order, count, ends, [&](const StreamRef& stream) {
    return launch_copy(stream, dst, src, count, ends, order.wait);
  });
}

orError_t set(Order order, void* ptr, int value, size_t count) {
  Machine* const machine = get_machine();
  Ends ends;
  if (machine == nullptr ||
      check_set(machine, order.call, ptr, count, &ends) != orSuccess) {
    return orPeekAtLastError();
  }
  return in_order(machine, order, count, ends, [&](const StreamRef& stream) {
    return launch_task(
        stream, Fill{reach(ptr), value, count}, order.wait, [](Fill*) {});
  });
}

}  // namespace

}  // namespace emulator

using namespace emulator;

orError_t orMemcpy(
    void* dst, const void* src, size_t count, orMemcpyKind kind) {
  return copy({"orMemcpy", true, nullptr}, dst, src, count, kind);
}

orError_t orMemcpyAsync(
    void* dst,
    const void* src,
    size_t count,
    orMemcpyKind kind,
    orStream_t stream) {
  return copy({"orMemcpyAsync", false, stream}, dst, src, count, kind);
}

orError_t orMemcpyPeer(
    void* dst, int dst_device, const void* src, int src_device, size_t count) {
  const Order order{"orMemcpyPeer", true, nullptr};
  return peer_copy(order, dst, dst_device, src, src_device, count);
}

orError_t orMemcpyPeerAsync(
    void* dst,
    int dst_device,
    const void* src,
    int src_device,
    size_t count,
    orStream_t stream) {
  const Order order{"orMemcpyPeerAsync", false, stream};
  return peer_copy(order, dst, dst_device, src, src_device, count);
}

orError_t orMemset(void* ptr, int value, size_t count) {
  return set({"orMemset", true, nullptr}, ptr, value, count);
}

orError_t orMemsetAsync(void* ptr, int value, size_t count, orStream_t stream) {
  return set({"orMemsetAsync", false, stream}, ptr, value, count);
}
