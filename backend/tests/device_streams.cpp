// Many threads use streams, events and turns at once. What work of one stream,
// or work that an event orders, touches is not atomic, so that a sanitizer
// sees when two run at a time.
//
//   device_streams stress   order and arguments, and a device that fails
//   device_streams exit     ends with a kernel running, others pending, and
//                           a thread that waits for its turn

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <random>
#include <thread>
#include <vector>

#include "device/openreg.h"
#include "tests/device_check.h"

namespace {

constexpr int kThreads = 6;
constexpr int kShared = 4;
constexpr int kRounds = 400;

// What is touched by work of one stream alone.
struct Counter {
  orStream_t stream = nullptr;
  long count = 0;
  std::atomic<long> expected{0};
};

Counter counters[kShared];
std::atomic<long> released{0};

orError_t count(void* args) {
  ++static_cast<Counter*>(args)->count;
  return orSuccess;
}

void count_on_host(void* args) {
  ++static_cast<Counter*>(args)->count;
}

void release(void*) {
  ++released;
}

// A message from one stream to another, and back for the next.
struct Post {
  orStream_t from = nullptr;
  orStream_t to = nullptr;
  orEvent_t sent = nullptr;
  orEvent_t read = nullptr;
  long letter = 0;
  long total = 0;
};

orError_t write_letter(void* args) {
  ++static_cast<Post*>(args)->letter;
  return orSuccess;
}

orError_t read_letter(void* args) {
  Post* const post = static_cast<Post*>(args);
  post->total += post->letter;
  return orSuccess;
}

void send(Post* post) {
  SUCCEED(orLaunchKernel(post->from, "write", write_letter, post, nullptr));
  SUCCEED(orEventRecord(post->sent, post->from));
  SUCCEED(orStreamWaitEvent(post->to, post->sent));
  SUCCEED(orLaunchKernel(post->to, "read", read_letter, post, nullptr));
  SUCCEED(orEventRecord(post->read, post->to));
  SUCCEED(orStreamWaitEvent(post->from, post->read));
}

void use(Counter* counter, unsigned choice) {
  switch (choice % 8) {
    case 0:
      SUCCEED(orStreamBeginTurn(counter->stream, "count"));
      ++counter->count;
      SUCCEED(
          orLaunchKernel(counter->stream, "count", count, counter, release));
      SUCCEED(orStreamEndTurn(counter->stream));
      counter->expected += 2;
      --released;
      return;
    case 1:
      SUCCEED(
          orLaunchHostFunc(counter->stream, count_on_host, counter, nullptr));
      ++counter->expected;
      return;
    case 2:
      SUCCEED(orStreamSynchronize(counter->stream));
      return;
    case 3: {
      const orError_t answer = orStreamQuery(counter->stream);
      CHECK(answer == orSuccess || answer == orErrorNotReady);
      return;
    }
    default:
      SUCCEED(
          orLaunchKernel(counter->stream, "count", count, counter, release));
      ++counter->expected;
      --released;
  }
}

// A stream that is gone before its work is done.
void use_and_destroy(Counter* counter, orEvent_t event) {
  SUCCEED(orStreamCreateWithPriority(&counter->stream, -1));
  for (int times = 0; times < 3; ++times) {
    SUCCEED(orLaunchKernel(counter->stream, "count", count, counter, nullptr));
  }
  SUCCEED(orEventRecord(event, counter->stream));
  SUCCEED(orStreamDestroy(counter->stream));
  SUCCEED(orEventSynchronize(event));
  CHECK(counter->count == 3);
  counter->count = 0;
}

void copy_there_and_back(orStream_t stream, unsigned value) {
  void* block = nullptr;
  void* pinned = nullptr;
  SUCCEED(orMalloc(&block, sizeof(value)));
  SUCCEED(orMallocHost(&pinned, sizeof(value)));
  SUCCEED(orMemcpyAsync(block, &value, sizeof(value), orMemcpyDefault, stream));
  SUCCEED(orMemcpyAsync(pinned, block, sizeof(value), orMemcpyDefault, stream));
  SUCCEED(orStreamSynchronize(stream));
  CHECK(std::memcmp(pinned, &value, sizeof(value)) == 0);
  SUCCEED(orFreeHost(pinned));
  SUCCEED(orFree(block));
}

void keep_order(int thread) {
  std::mt19937 chance(thread);
  Post post;
  SUCCEED(orSetDevice(thread % 2));
  SUCCEED(orStreamCreateWithPriority(&post.from, 0));
  SUCCEED(orEventCreate(&post.sent, orEventDefault));
  SUCCEED(orSetDevice(1));
  SUCCEED(orStreamCreateWithPriority(&post.to, -1));
  SUCCEED(orEventCreate(&post.read, orEventDisableTiming));
  orEvent_t event = nullptr;
  SUCCEED(orEventCreate(&event, orEventDefault));
  Counter own;
  for (int round = 0; round < kRounds; ++round) {
    use(&counters[chance() % kShared], chance());
    send(&post);
    if (round % 50 == 0) {
      use_and_destroy(&own, event);
      copy_there_and_back(post.from, chance());
      SUCCEED(orDeviceSynchronize());
    }
  }
  SUCCEED(orStreamSynchronize(post.to));
  CHECK(post.total == static_cast<long>(kRounds) * (kRounds + 1) / 2);
  SUCCEED(orStreamDestroy(post.from));
  SUCCEED(orStreamDestroy(post.to));
  SUCCEED(orEventDestroy(post.sent));
  SUCCEED(orEventDestroy(post.read));
  SUCCEED(orEventDestroy(event));
}

// Hears of work between its subscription and its end, and of none outside.
struct Listener {
  bool listens = true;
  std::atomic<long> heard{0};

  static void hear(const orTraceRecord* record, void* listener) {
    auto* const self = static_cast<Listener*>(listener);
    CHECK(self->listens && record->work != 0);
    ++self->heard;
  }
};

// The first subscription of each lasts until it has heard something.
void listen_now_and_then(
    std::latch* subscribed, const std::atomic<bool>* done, long* heard) {
  do {
    Listener listener;
    orSubscriber_t handle = nullptr;
    SUCCEED(orTraceSubscribe(&handle, &Listener::hear, &listener));
    if (*heard == 0) {
      subscribed->count_down();
    }
    do {
      usleep(200);
    } while (*heard + listener.heard == 0);
    SUCCEED(orTraceUnsubscribe(handle));
    listener.listens = false;
    *heard += listener.heard;
  } while (!*done);
}

template <typename Body>
void on_threads(Body body) {
  std::latch subscribed{2};
  std::atomic<bool> done{false};
  long heard[2] = {};
  std::thread first(listen_now_and_then, &subscribed, &done, &heard[0]);
  std::thread second(listen_now_and_then, &subscribed, &done, &heard[1]);
  subscribed.wait();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(body, thread);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  done = true;
  first.join();
  second.join();
}

void stress_order() {
  SUCCEED(orDeviceGetDefaultStream(&counters[0].stream, 0));
  SUCCEED(orDeviceGetDefaultStream(&counters[1].stream, 1));
  SUCCEED(orStreamCreateWithPriority(&counters[2].stream, 0));
  SUCCEED(orStreamCreateWithPriority(&counters[3].stream, -1));
  on_threads(keep_order);
  for (const Counter& counter : counters) {
    SUCCEED(orStreamSynchronize(counter.stream));
    CHECK(counter.count == counter.expected);
  }
  CHECK(released == 0);
  std::puts("order kept, nothing lost");
}

orError_t fail(void*) {
  orSetKernelError("on purpose");
  return orErrorLaunchFailure;
}

// The answers of a device that may fail at any time.
void allow(orError_t answer) {
  CHECK(
      answer == orSuccess || answer == orErrorLaunchFailure ||
      answer == orErrorDeviceFailed);
}

void fail_and_reset(int thread) {
  std::mt19937 chance(thread);
  SUCCEED(orSetDevice(1));
  const orStream_t stream = counters[thread % 2 == 0 ? 1 : 3].stream;
  orEvent_t event = nullptr;
  SUCCEED(orEventCreate(&event, orEventDefault));
  orStream_t own = nullptr;
  SUCCEED(orStreamCreateWithPriority(&own, 0));
  for (int round = 0; round < kRounds; ++round) {
    --released;
    const bool bad = chance() % 16 == 0;
    allow(orLaunchKernel(
        chance() % 2 == 0 ? stream : own,
        "count",
        bad ? fail : write_letter,
        new Post,
        [](void* args) {
          delete static_cast<Post*>(args);
          ++released;
        }));
    allow(orEventRecord(event, own));
    allow(orStreamWaitEvent(own, event));
    if (orStreamBeginTurn(own, "turn") == orSuccess) {
      SUCCEED(orStreamEndTurn(own));
    }
    if (chance() % 8 == 0) {
      allow(orStreamSynchronize(stream));
      allow(orEventSynchronize(event));
    }
    if (chance() % 32 == 0) {
      SUCCEED(orDeviceReset());
    }
  }
  SUCCEED(orStreamDestroy(own));
  SUCCEED(orEventDestroy(event));
}

void stress_failure() {
  SUCCEED(orSetDevice(1));
  orStream_t stream = nullptr;
  SUCCEED(orStreamCreateWithPriority(&stream, 0));
  counters[3].stream = stream;
  on_threads(fail_and_reset);
  SUCCEED(orDeviceReset());
  SUCCEED(orDeviceSynchronize());
  CHECK(released == 0);
  std::puts("failures told, nothing lost");
}

std::atomic<bool> begun{false};
std::atomic<bool> draining{false};
std::atomic<bool> ended{false};

// Runs on into the drain, however late the process comes to it.
orError_t run_for_long(void*) {
  begun = true;
  while (!draining) {
    std::this_thread::yield();
  }
  usleep(100'000);
  ended = true;
  return orSuccess;
}

orError_t run_never(void*) {
  std::puts("a kernel was begun");
  return orSuccess;
}

// When the drain has begun, an idle stream runs its work at once.
void watch(orStream_t idle) {
  while (!orStreamRunsInline(idle)) {
    std::this_thread::yield();
  }
  draining = true;
}

// Waits for a turn that `main` never ends.
std::atomic<bool> told{false};

void wait_for_turn(orStream_t taken) {
  CHECK(orStreamBeginTurn(taken, "late") == orErrorDeviceFailed);
  CHECK(std::strcmp(orGetErrorDetail(), "the process is ending") == 0);
  told = true;
}

// Comes after the drain, as it was registered before the first worker.
void look_back() {
  if (ended) {
    std::puts("running kernel ended");
  }
  while (!told) {
    std::this_thread::yield();
  }
  orStream_t stream = nullptr;
  SUCCEED(orStreamCreateWithPriority(&stream, 0));
  Counter counter;
  SUCCEED(orLaunchKernel(stream, "count", count, &counter, nullptr));
  CHECK(counter.count == 1);
  SUCCEED(orDeviceSynchronize());
  std::puts("after the drain, work runs at once");
}

void end_with_work() {
  static const uint64_t never = 0;
  std::atexit(look_back);  // which runs the later, the earlier it is given
  orStream_t stream = nullptr;
  orStream_t held = nullptr;
  orStream_t idle = nullptr;
  orStream_t taken = nullptr;
  for (orStream_t* made : {&stream, &held, &idle, &taken}) {
    SUCCEED(orStreamCreateWithPriority(made, 0));
  }
  if (orStreamRunsInline(held)) {
    std::puts("in blocking mode nothing is ever pending");
    told = true;
    return;
  }
  SUCCEED(orStreamBeginTurn(taken, "main"));
  std::thread(wait_for_turn, taken).detach();
  while (orStreamQuery(taken) != orErrorNotReady) {  // the turn alone is ready
    std::this_thread::yield();
  }
  std::thread(watch, idle).detach();
  SUCCEED(orLaunchKernel(stream, "long", run_for_long, nullptr, nullptr));
  SUCCEED(orLaunchKernel(stream, "never", run_never, nullptr, nullptr));
  SUCCEED(orStreamWaitValue64(held, &never, 1));
  SUCCEED(orLaunchKernel(held, "never", run_never, nullptr, nullptr));
  while (!begun) {
    std::this_thread::yield();
  }
  std::puts("main ends");
}

}  // namespace

int main(int count, char** words) {
  CHECK(count == 2);
  if (std::strcmp(words[1], "exit") == 0) {
    end_with_work();
  } else {
    CHECK(std::strcmp(words[1], "stress") == 0);
    stress_order();
    stress_failure();
  }
}
