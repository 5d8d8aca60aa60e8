#include <cstring>
#include <memory>
#include <utility>

#include "device/launch.h"

// Copies between host and devices, and filling. Everything that can be refused
// is refused before the first byte moves.

namespace emulator {

namespace {

// One end of a copy or set, and the block that it was found in.
struct End {
  const char* role;
  const void* address;
  Block block = kNoBlock;
};

// What a call asks for. It is done in the order of `stream`, or waited for in
// the order of a default stream.
struct Request {
  const char* call;
  bool wait;
  orStream_t stream;
  size_t count;
  End dst;
  End src{};  // a set has none
};

// [dev-check-range] A range must end where its block ends, or before.
// Ordinary host memory is in no block: its bounds are the host's business.
orError_t check_range(Machine* machine, End* end, size_t count) {
  const Block& block = end->block = find_block(machine, end->address);
  if (block.base == nullptr) {
    if (!in_device_range(end->address)) {
      return orSuccess;
    }
    return fail(
        orErrorInvalidDevicePointer,
        "%s %p is in no live block of device memory; was it freed?",
        end->role,
        end->address);
  }
  const size_t rest =
      to_integer(block.base) + block.size - to_integer(end->address);
  if (count <= rest) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidValue,
      "%s %p: %zu bytes pass the end of its block; expected at most %zu",
      end->role,
      end->address,
      count,
      rest);
}
// [/dev-check-range]

// The kind of a copy must fit both pointers.
orError_t check_side(const End& end, bool expect_device) {
  if (in_device_range(end.address) == expect_device) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidMemcpyDirection,
      "%s %p is %s memory, but the kind expects %s memory",
      end.role,
      end.address,
      expect_device ? "host" : "device",
      expect_device ? "device" : "host");
}

orError_t check_owner(Machine* machine, const End& end, int index) {
  if (in_device_range(end.address) &&
      owner_of(machine, end.address)->index == index) {
    return orSuccess;
  }
  return fail(
      orErrorInvalidDevicePointer,
      "%s %p is not memory of device %d",
      end.role,
      end.address,
      index);
}

// [dev-copy] The copy engine looks where a kernel would.
void* reach(const void* address) {
  const ptrdiff_t offset =
      in_device_range(address) ? orReservedAddresses.kernel_offset : 0;
  return to_pointer(to_integer(address) + offset);
}

// The ranges may overlap.
struct Copy {
  void* dst;
  const void* src;
  size_t count;
  const char* name;
  std::unique_ptr<char[]> staged{};  // what src was, where it is pageable

  static constexpr orTraceKind kKind = orTraceCopy;

  orError_t operator()() const {
    std::memmove(dst, staged ? staged.get() : src, count);
    return orSuccess;
  }
};
// [/dev-copy]

struct Fill {
  void* dst;
  int value;
  size_t count;

  static constexpr orTraceKind kKind = orTraceSet;
  static constexpr const char* name = "Memset (Device)";

  orError_t operator()() const {
    std::memset(dst, value, count);
    return orSuccess;
  }
};

// A copy that runs here needs nothing from the heap.
// Else it moves there, and `stage` sees to what the caller may change.
template <typename Task, typename Stage>
orError_t launch_task(
    const StreamRef& stream, Task&& task, bool must_run_here, Stage&& stage) {
  if (stream == nullptr) {
    return task();
  }
  Label label{Task::kKind, task.name, task.count};
  return launch(stream, label, must_run_here, task, [&] {
    stage(&task);
    return pack(label, std::move(task));
  });
}

// Pageable memory is the host's alone: nobody reads it later than promised,
// and nobody writes it behind the host's back.
bool is_pageable(const End& end) {
  return end.block.type == orMemoryTypeUnregistered;
}

// What profilers call a copy: a pageable end is what makes it slow.
const char* name_copy(const Request& request) {
  static constexpr const char* names[3][3] = {
      {"Memcpy HtoH (Pageable -> Pageable)",
       "Memcpy HtoH (Pageable -> Pinned)",
       "Memcpy HtoD (Pageable -> Device)"},
      {"Memcpy HtoH (Pinned -> Pageable)",
       "Memcpy HtoH (Pinned -> Pinned)",
       "Memcpy HtoD (Pinned -> Device)"},
      {"Memcpy DtoH (Device -> Pageable)",
       "Memcpy DtoH (Device -> Pinned)",
       "Memcpy DtoD (Device -> Device)"}};
  return names[request.src.block.type][request.dst.block.type];
}

// Both ends must be given, be where `check_place` wants them, and have room.
template <typename CheckPlace>
orError_t check_ends(
    Machine* machine, Request* request, CheckPlace&& check_place) {
  if (request->count == 0) {
    return orSuccess;
  }
  if (request->dst.address == nullptr || request->src.address == nullptr) {
    return fail(orErrorInvalidValue, "%s: dst or src is NULL", request->call);
  }
  const auto check = [&](End* end) {
    const orError_t error = check_place(*end);
    return error == orSuccess ? check_range(machine, end, request->count)
                              : error;
  };
  const orError_t error = check(&request->dst);
  return error == orSuccess ? check(&request->src) : error;
}

// [dev-memcpy] In a kind's number, bit 0 puts dst on a device, bit 1 src.
orError_t check_copy(Machine* machine, Request* request, orMemcpyKind kind) {
  const unsigned number = static_cast<unsigned>(kind);
  if (number > orMemcpyDefault) {
    return fail(
        orErrorInvalidMemcpyDirection,
        "%s: kind is %u; expected 0 to 4",
        request->call,
        number);
  }
  return check_ends(machine, request, [&](const End& end) {
    const unsigned bit = &end == &request->dst ? 1 : 2;
    return kind == orMemcpyDefault ? orSuccess : check_side(end, number & bit);
  });
}
// [/dev-memcpy]

orError_t check_peer_copy(
    Machine* machine, Request* request, int dst_device, int src_device) {
  for (const int index : {dst_device, src_device}) {
    const Result<Device*> device = find_device(machine, index);
    if (!device) {
      return device.error();
    }
  }
  return check_ends(machine, request, [&](const End& end) {
    const bool is_dst = &end == &request->dst;
    return check_owner(machine, end, is_dst ? dst_device : src_device);
  });
}

orError_t check_set(Machine* machine, Request* request) {
  const void* const ptr = request->dst.address;
  if (request->count == 0) {
    return orSuccess;
  }
  if (ptr == nullptr) {
    return fail(orErrorInvalidValue, "%s: ptr is NULL", request->call);
  }
  if (!in_device_range(ptr)) {
    return fail(
        orErrorInvalidDevicePointer,
        "%s: %p is not device memory; the host can set its own",
        request->call,
        ptr);
  }
  return check_range(machine, &request->dst, request->count);
}

// [dev-launch-copy] Copies keep their promises about pageable memory.
// A copy into it has been made when the call returns; of one out of it, at
// least the source has been read. In a capture there is no way to keep either.
orError_t launch_copy(const StreamRef& stream, const Request& request) {
  const void* const src = request.src.address;
  const size_t count = request.count;
  const auto stage = [&](Copy* copy) {
    if (is_pageable(request.src)) {
      copy->staged.reset(new char[count]);
      std::memcpy(copy->staged.get(), src, count);
    }
  };
  const bool captured = stream != nullptr && is_capturing(*stream);
  return launch_task(
      stream,
      Copy{reach(request.dst.address), reach(src), count, name_copy(request)},
      request.wait || is_pageable(request.dst) ||
          (captured && is_pageable(request.src)),
      stage);
}
// [/dev-launch-copy]

// Between pageable memory alone, or of no byte, a copy is no device's.
template <typename Launch>
orError_t in_order(Machine* machine, const Request& request, Launch&& launch) {
  orStream_t handle = request.stream;
  if (request.wait) {
    const int dst_owner = request.dst.block.device;
    const int owner = dst_owner >= 0 ? dst_owner : request.src.block.device;
    if (owner < 0) {
      return request.count == 0 ? orSuccess : launch(nullptr, request);
    }
    handle = &machine->devices[owner].default_stream;
  }
  const auto launch_any = [&](const StreamRef& stream) {
    return request.count == 0 ? orSuccess : launch(stream, request);
  };
  return with_stream(request.call, machine, handle, launch_any);
}

orError_t copy(Request&& request, orMemcpyKind kind) {
  const Result<Machine*> machine = get_machine();
  const orError_t error =
      machine ? check_copy(machine.value(), &request, kind) : machine.error();
  return error == orSuccess ? in_order(machine.value(), request, launch_copy)
                            : error;
}

orError_t peer_copy(Request&& request, int dst_device, int src_device) {
  const Result<Machine*> machine = get_machine();
  const orError_t error =
      machine
          ? check_peer_copy(machine.value(), &request, dst_device, src_device)
          : machine.error();
  return error == orSuccess ? in_order(machine.value(), request, launch_copy)
                            : error;
}

orError_t set(Request&& request, int value) {
  const Result<Machine*> machine = get_machine();
  const orError_t error =
      machine ? check_set(machine.value(), &request) : machine.error();
  const auto launch_set = [&](const StreamRef& stream, const Request&) {
    return launch_task(
        stream,
        Fill{reach(request.dst.address), value, request.count},
        request.wait,
        [](Fill*) {});
  };
  return error == orSuccess ? in_order(machine.value(), request, launch_set)
                            : error;
}

}  // namespace

}  // namespace emulator

using namespace emulator;

orError_t orMemcpy(
    void* dst, const void* src, size_t count, orMemcpyKind kind) {
  return copy(
      {"orMemcpy", true, nullptr, count, {"dst", dst}, {"src", src}}, kind);
}

orError_t orMemcpyAsync(
    void* dst,
    const void* src,
    size_t count,
    orMemcpyKind kind,
    orStream_t stream) {
  return copy(
      {"orMemcpyAsync", false, stream, count, {"dst", dst}, {"src", src}},
      kind);
}

orError_t orMemcpyPeer(
    void* dst, int dst_device, const void* src, int src_device, size_t count) {
  return peer_copy(
      {"orMemcpyPeer", true, nullptr, count, {"dst", dst}, {"src", src}},
      dst_device,
      src_device);
}

orError_t orMemcpyPeerAsync(
    void* dst,
    int dst_device,
    const void* src,
    int src_device,
    size_t count,
    orStream_t stream) {
  return peer_copy(
      {"orMemcpyPeerAsync", false, stream, count, {"dst", dst}, {"src", src}},
      dst_device,
      src_device);
}

orError_t orMemset(void* ptr, int value, size_t count) {
  return set({"orMemset", true, nullptr, count, {"ptr", ptr}}, value);
}

orError_t orMemsetAsync(void* ptr, int value, size_t count, orStream_t stream) {
  return set({"orMemsetAsync", false, stream, count, {"ptr", ptr}}, value);
}
