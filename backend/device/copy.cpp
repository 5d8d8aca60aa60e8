#include <atomic>
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

// [dev-check-range] A range must end within its block.
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

// [dev-share] A long copy is split among threads that the host lends.
std::atomic<const orHostThreads*> host_threads{nullptr};

// As many as the host may use when it launches the copy.
struct Crew {
  const orHostThreads* host = nullptr;
  int threads = 1;
};

Crew crew_for(size_t count) {
  constexpr size_t worth_sharing = 192 * 1024;
  const orHostThreads* const host = host_threads.load();
  return host != nullptr && count >= worth_sharing ? Crew{host, host->count()}
                                                   : Crew{};
}

template <typename Part>
void share(const Crew& crew, size_t count, const Part& part) {
  if (crew.threads <= 1) {
    part(0, count);
    return;
  }
  const auto call = [](const void* args, size_t begin, size_t end) {
    (*static_cast<const Part*>(args))(begin, end);
  };
  crew.host->share(crew.threads, count, call, &part);
}
// [/dev-share]

// [dev-copy] The copy engine uses the addresses that kernels use.
void* reach(const void* address) {
  const ptrdiff_t offset =
      in_device_range(address) ? orReservedAddresses.kernel_offset : 0;
  return to_pointer(to_integer(address) + offset);
}

// The ranges may overlap, and are then moved in one piece.
struct Copy {
  void* dst;
  const void* src;
  size_t count;
  const char* name;
  Crew crew;
  std::unique_ptr<char[]> staged{};  // what src was, where it is pageable

  static constexpr orTraceKind kKind = orTraceCopy;

  orError_t operator()() const {
    const char* const from =
        staged ? staged.get() : static_cast<const char*>(src);
    char* const to = static_cast<char*>(dst);
    const bool apart = from + count <= to || to + count <= from;
    share(apart ? crew : Crew{}, count, [&](size_t begin, size_t end) {
      std::memmove(to + begin, from + begin, end - begin);
    });
    return orSuccess;
  }
};
// [/dev-copy]

struct Fill {
  void* dst;
  int value;
  size_t count;
  Crew crew;

  static constexpr orTraceKind kKind = orTraceSet;
  static constexpr const char* name = "Memset (Device)";

  orError_t operator()() const {
    share(crew, count, [&](size_t begin, size_t end) {
      std::memset(static_cast<char*>(dst) + begin, value, end - begin);
    });
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

// [dev-memcpy] Bit 0 of a kind says that dst is on a device, bit 1 that src is.
// Both ends must be given, be where the kind wants them, and have room.
orError_t check_copy(Machine* machine, Request* request, orMemcpyKind kind) {
  const unsigned number = static_cast<unsigned>(kind);
  if (number > orMemcpyDefault) {
    return fail(
        orErrorInvalidMemcpyDirection,
        "%s: kind is %u; expected 0 to 4",
        request->call,
        number);
  }
  if (request->count == 0) {
    return orSuccess;
  }
  if (request->dst.address == nullptr || request->src.address == nullptr) {
    return fail(orErrorInvalidValue, "%s: dst or src is NULL", request->call);
  }
  const auto check = [&](End* end, unsigned bit) {
    const orError_t error =
        kind == orMemcpyDefault ? orSuccess : check_side(*end, number & bit);
    return error == orSuccess ? check_range(machine, end, request->count)
                              : error;
  };
  const orError_t error = check(&request->dst, 1);
  return error == orSuccess ? check(&request->src, 2) : error;
}
// [/dev-memcpy]

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
      Copy{
          reach(request.dst.address),
          reach(src),
          count,
          name_copy(request),
          crew_for(count)},
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

orError_t set(Request&& request, int value) {
  const Result<Machine*> machine = get_machine();
  const orError_t error =
      machine ? check_set(machine.value(), &request) : machine.error();
  const auto launch_set = [&](const StreamRef& stream, const Request&) {
    return launch_task(
        stream,
        Fill{
            reach(request.dst.address),
            value,
            request.count,
            crew_for(request.count)},
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

orError_t orMemset(void* ptr, int value, size_t count) {
  return set({"orMemset", true, nullptr, count, {"ptr", ptr}}, value);
}

orError_t orMemsetAsync(void* ptr, int value, size_t count, orStream_t stream) {
  return set({"orMemsetAsync", false, stream, count, {"ptr", ptr}}, value);
}

void orSetHostThreads(const orHostThreads* threads) {
  host_threads.store(threads);
}
