// The pool under eight threads, four streams and too little memory, and in the
// two situations that threads meet by chance: a turn with work behind it, and a
// device that fails. The pool is compiled into this program, so that a
// sanitizer sees it.
//
// Its argument is the number of rounds.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "device/openreg.h"
#include "tests/device_check.h"

namespace {

std::atomic<int> events_made{0};

// What the pool below makes its events with.
orError_t count_and_create(orEvent_t* event, unsigned flags) {
  ++events_made;
  return orEventCreate(event, flags);
}

}  // namespace

#define orEventCreate count_and_create
#include "csrc/runtime/pool/pool.cpp"
#include "csrc/runtime/pool/release.cpp"
#include "csrc/runtime/pool/stats.cpp"
#undef orEventCreate

namespace {

using openreg::Pool;

constexpr int kThreads = 8;
constexpr int kStreams = 4;
constexpr size_t kMostBlocks = 12;

ptrdiff_t kernel_offset;
orStream_t streams[kStreams];
std::atomic<int> wrong_bytes{0};
std::atomic<int> refusals{0};

struct Bytes {
  unsigned char* start;  // where a kernel looks
  size_t size;
  unsigned char pattern;
};

orError_t fill(void* args) {
  auto* const bytes = static_cast<Bytes*>(args);
  std::memset(bytes->start, bytes->pattern, bytes->size);
  return orSuccess;
}

orError_t compare(void* args) {
  auto* const bytes = static_cast<Bytes*>(args);
  for (size_t i = 0; i < bytes->size; ++i) {
    wrong_bytes += bytes->start[i] != bytes->pattern;
  }
  return orSuccess;
}

void launch(orStream_t stream, orKernelFn kernel, const Bytes& bytes) {
  SUCCEED(
      orLaunchKernel(stream, "test", kernel, new Bytes(bytes), [](void* args) {
        delete static_cast<Bytes*>(args);
      }));
}

// A live block with a pattern, and its stream.
struct Owned {
  void* address;
  orStream_t stream;
  Bytes bytes;
};

class Worker {
 public:
  Worker(Pool& pool, int seed) : pool_(pool), random_(seed) {}

  // Meanwhile a graph that owns a private pool may come and go.
  void round() {
    const uint64_t number = 1 + draw(kStreams);
    pool_.keep_arena(number);
    for (int step = 0; step < 20; ++step) {
      blocks_.size() < kMostBlocks&& draw(3) > 0 ? take() : give(draw(99));
    }
    if (draw(20) == 0) {
      pool_.release_cached();
    }
    pool_.release_arena(number);
  }

  void finish() {
    while (!blocks_.empty()) {
      give(0);
    }
  }

 private:
  size_t draw(size_t below) {
    return random_() % below;
  }

  void take() {
    const size_t size = 1 + draw(size_t{1} << (5 + draw(17)));
    const size_t number = draw(kStreams);
    const orStream_t stream = streams[number];
    void* address = nullptr;
    const orError_t error = pool_.allocate(
        &address, size, draw(3) > 0 ? stream : Pool::private_arena(number + 1));
    if (error == orErrorMemoryAllocation) {
      ++refusals;
      finish();
      return;
    }
    SUCCEED(error);
    auto* const start = static_cast<unsigned char*>(address) + kernel_offset;
    // The ends are enough, and quick under a sanitizer.
    const Bytes bytes{
        start,
        std::min(size, size_t{999}),
        static_cast<unsigned char>(draw(256))};
    blocks_.push_back({address, stream, bytes});
    launch(stream, &fill, bytes);
  }

  void give(size_t index) {
    if (blocks_.empty()) {
      return;
    }
    std::swap(blocks_[index % blocks_.size()], blocks_.back());
    const Owned block = blocks_.back();
    blocks_.pop_back();
    if (draw(3) == 0) {
      use_elsewhere(block);
    }
    launch(block.stream, &compare, block.bytes);
    CHECK(pool_.free(block.address) >= block.bytes.size);
    if (draw(50) == 0) {
      CHECK(!pool_.record_stream(&random_, block.stream));
      CHECK(pool_.free(&random_) == 0);
    }
  }

  // Another stream reads it, after its own and before it is free.
  void use_elsewhere(const Owned& block) {
    const orStream_t other = streams[draw(kStreams)];
    orEvent_t filled = nullptr;
    SUCCEED(orEventCreate(&filled, orEventDisableTiming));
    SUCCEED(orEventRecord(filled, block.stream));
    SUCCEED(orStreamWaitEvent(other, filled));
    SUCCEED(orEventDestroy(filled));
    launch(other, &compare, block.bytes);
    CHECK(pool_.record_stream(block.address, other));
  }

  Pool& pool_;
  std::minstd_rand random_;
  std::vector<Owned> blocks_;
};

void check_empty(Pool& pool) {
  SUCCEED(orDeviceSynchronize());
  pool.release_cached();
  const auto stats = pool.stats();
  for (const auto& kind : stats.counts) {
    for (const auto& count : kind) {
      CHECK(count.current() == 0);
    }
  }
  CHECK(pool.snapshot().empty());
  size_t free = 0;
  size_t total = 0;
  SUCCEED(orMemGetInfo(&free, &total));
  CHECK(free == total);
  CHECK(wrong_bytes == 0);
}

void random_rounds(Pool& pool, int rounds) {
  std::vector<std::thread> threads;
  for (int seed = 1; seed <= kThreads; ++seed) {
    threads.emplace_back([&pool, rounds, seed] {
      Worker worker(pool, seed);
      for (int round = 0; round < rounds; ++round) {
        worker.round();
      }
      worker.finish();
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  check_empty(pool);
}

// The event that a free has waited for serves the next free of its stream.
void events_serve_again(Pool& pool) {
  const int before = events_made;
  for (int i = 0; i < 3; ++i) {
    void* address = nullptr;
    SUCCEED(pool.allocate(&address, 100, streams[0]));
    CHECK(pool.record_stream(address, streams[1]));
    pool.free(address);
    check_empty(pool);
  }
  CHECK(events_made == before + 1);
}

// A segment stays while work that uses it waits for this thread's turn to end.
void work_behind_a_turn(Pool& pool) {
  const orStream_t stream = streams[0];
  SUCCEED(orStreamBeginTurn(stream, "turn"));
  std::thread([&] {
    void* address = nullptr;
    SUCCEED(pool.allocate(&address, 100, stream));
    launch(
        stream,
        &fill,
        {static_cast<unsigned char*>(address) + kernel_offset, 100, 1});
    pool.free(address);
  }).join();
  pool.release_cached();
  CHECK(pool.snapshot().size() == 1);
  SUCCEED(orStreamEndTurn(stream));
  SUCCEED(orStreamSynchronize(stream));
  SUCCEED(orStreamBeginTurn(stream, "turn"));
  pool.release_cached();
  CHECK(pool.snapshot().empty());
  SUCCEED(orStreamEndTurn(stream));
  check_empty(pool);
}

// Two threads that have turns and find the device full do not wait for each
// other.
void two_turns(Pool& pool) {
  void* most = nullptr;
  SUCCEED(pool.allocate(&most, size_t{4} << 20, streams[2]));
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      SUCCEED(orStreamBeginTurn(streams[i], "turn"));
      for (++ready; ready < 2;) {
        std::this_thread::yield();
      }
      void* address = nullptr;
      CHECK(
          pool.allocate(&address, size_t{7} << 20, streams[i]) ==
          orErrorMemoryAllocation);
      pool.release_cached();
      SUCCEED(orStreamEndTurn(streams[i]));
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  pool.free(most);
  check_empty(pool);
}

orGraph_t end_capture(orStream_t stream) {
  orGraph_t graph = nullptr;
  SUCCEED(orStreamEndCapture(stream, &graph));
  --Pool::captures;
  return graph;
}

// What a captured stream was given before is not done because it is captured.
// The pool does not ask it, nor wait for the device, which would break it.
void freed_in_a_capture(Pool& pool) {
  const orStream_t stream = streams[1];
  void* address = nullptr;
  SUCCEED(pool.allocate(&address, 100, streams[0]));
  CHECK(pool.record_stream(address, stream));
  std::atomic<uint64_t> gate{0};
  SUCCEED(
      orStreamWaitValue64(stream, reinterpret_cast<const uint64_t*>(&gate), 1));
  SUCCEED(orStreamBeginCapture(stream));
  ++Pool::captures;
  pool.free(address);
  pool.release_cached();
  void* other = nullptr;
  SUCCEED(pool.allocate(&other, 100, streams[0]));
  CHECK(other != address);
  SUCCEED(orGraphDestroy(end_capture(stream)));
  gate = 1;
  pool.free(other);
  check_empty(pool);
}

// A private pool's block is used elsewhere, as any other.
void private_and_elsewhere(Pool& pool) {
  const orStream_t arena = Pool::private_arena(7);
  pool.keep_arena(7);
  void* address = nullptr;
  SUCCEED(pool.allocate(&address, 100, arena));
  CHECK(pool.private_pool_of(address) == 7);
  CHECK(pool.snapshot()[0].pool == 7 && pool.snapshot()[0].stream == nullptr);
  std::atomic<uint64_t> gate{0};
  SUCCEED(orStreamWaitValue64(
      streams[1], reinterpret_cast<const uint64_t*>(&gate), 1));
  CHECK(pool.record_stream(address, streams[1]));
  pool.free(address);
  void* other = nullptr;
  SUCCEED(pool.allocate(&other, 100, arena));
  CHECK(other != address);
  pool.free(other);
  gate = 1;
  SUCCEED(orDeviceSynchronize());
  pool.release_cached();
  CHECK(pool.snapshot().size() == 1);
  pool.release_arena(7);
  check_empty(pool);
}

// To free on a failed device loses no block, and reset brings all back.
void failed_device(Pool& pool) {
  void* address = nullptr;
  SUCCEED(pool.allocate(&address, 100, streams[0]));
  orLaunchKernel(
      streams[1],
      "fails",
      [](void*) { return orErrorLaunchFailure; },
      nullptr,
      nullptr);
  orStreamSynchronize(streams[1]);
  CHECK(pool.record_stream(address, streams[1]));
  CHECK(pool.free(address) == 100);
  pool.release_cached();
  CHECK(pool.snapshot().size() == 1);
  SUCCEED(orDeviceReset());
  void* again = nullptr;
  SUCCEED(pool.allocate(&again, 100, streams[0]));
  CHECK(again == address);
  pool.free(again);
  check_empty(pool);
}

void situations(Pool& pool) {
  events_serve_again(pool);
  work_behind_a_turn(pool);
  two_turns(pool);
  freed_in_a_capture(pool);
  private_and_elsewhere(pool);
  failed_device(pool);
}

}  // namespace

int main(int, char** arguments) {
  setenv("OPENREG_DEVICE_COUNT", "1", 1);
  setenv("OPENREG_DEVICE_MEMORY", "8M", 1);
  setenv("OPENREG_LAUNCH", "async", 0);
  orAddressSpace space{};
  SUCCEED(orGetAddressSpace(&space));
  kernel_offset = space.kernel_offset;
  for (auto& stream : streams) {
    SUCCEED(orStreamCreateWithPriority(&stream, 0));
  }
  static auto* const pool =
      new Pool(0, space.device_capacity, [](const std::function<void()>& wait) {
        wait();
      });
  if (!orStreamRunsInline(streams[0])) {  // where work can be pending
    situations(*pool);
  }
  random_rounds(*pool, std::atoi(arguments[1]));
  CHECK(refusals > 0);
  std::printf("8 threads, 4 streams: nothing lost\n");
}
