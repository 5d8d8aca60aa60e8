// Many threads capture, launch and destroy graphs at once. What a graph's work
// touches is not atomic, so that a sanitizer sees when two run at a time.
//
// Its argument is the number of rounds, a multiple of 4.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <thread>
#include <vector>

#include "device/openreg.h"
#include "tests/device_check.h"

namespace {

constexpr int kThreads = 6;
int rounds = 0;

// Whether a call succeeded that otherwise answers one of `errors`.
#define ANSWERS(call, ...) answers(call, {__VA_ARGS__}, #call, __LINE__)

bool answers(
    orError_t answer,
    std::initializer_list<orError_t> errors,
    const char* what,
    int line) {
  const bool known =
      std::find(errors.begin(), errors.end(), answer) != errors.end();
  check(answer == orSuccess || known, what, line);
  return answer == orSuccess;
}

std::atomic<long> owed{0};  // arguments that are launched, and not released

struct Counter {
  long count = 0;
};

orError_t count(void* args) {
  ++static_cast<Counter*>(args)->count;
  return orSuccess;
}

void count_on_host(void* args) {
  ++static_cast<Counter*>(args)->count;
}

void release(void*) {
  --owed;
}

orError_t launch_count(orStream_t stream, Counter* counter) {
  ++owed;
  return orLaunchKernel(stream, "count", count, counter, release);
}

orStream_t make_stream() {
  orStream_t stream = nullptr;
  SUCCEED(orStreamCreateWithPriority(&stream, 0));
  return stream;
}

// `to` waits for what `from` has been given.
void follow(orStream_t to, orStream_t from) {
  orEvent_t event = nullptr;
  SUCCEED(orEventCreate(&event, orEventDisableTiming));
  SUCCEED(orEventRecord(event, from));
  SUCCEED(orStreamWaitEvent(to, event));
  SUCCEED(orEventDestroy(event));
}

// Four counts of work on two streams that meet.
orGraph_t capture_branches(orStream_t stream, orStream_t side, Counter* own) {
  orGraph_t graph = nullptr;
  SUCCEED(orStreamBeginCapture(stream));
  SUCCEED(launch_count(stream, own));
  follow(side, stream);
  SUCCEED(launch_count(side, own));
  SUCCEED(orLaunchHostFunc(side, count_on_host, own, nullptr));
  follow(stream, side);
  SUCCEED(launch_count(stream, own));
  SUCCEED(orStreamEndCapture(stream, &graph));
  return graph;
}

// A graph of this thread's alone, that is gone before its launches are done.
void launch_and_destroy(orStream_t stream, orStream_t side) {
  Counter own;
  const orGraph_t graph = capture_branches(stream, side, &own);
  CHECK(own.count == 0);
  for (int times = 0; times < 3; ++times) {
    SUCCEED(orGraphLaunch(graph, stream));
  }
  follow(side, stream);
  SUCCEED(orGraphLaunch(graph, side));
  SUCCEED(orGraphDestroy(graph));
  SUCCEED(orStreamSynchronize(side));
  CHECK(own.count == 16);
}

// Each stream is as before, whatever came of its capture.
void break_a_capture(orStream_t stream, orStream_t side, unsigned how) {
  Counter own;
  orGraph_t graph = nullptr;
  SUCCEED(orStreamBeginCapture(stream));
  SUCCEED(launch_count(stream, &own));
  if (how % 3 == 0) {
    follow(side, stream);  // and is not joined
    SUCCEED(launch_count(side, &own));
  } else {
    CHECK(
        (how % 3 == 1 ? orStreamSynchronize(stream)
                      : orStreamBeginTurn(stream, "turn")) ==
        orErrorStreamCaptureUnsupported);
    CHECK(launch_count(stream, &own) == orErrorStreamCaptureInvalidated);
  }
  CHECK(orStreamEndCapture(stream, &graph) == orErrorStreamCaptureInvalidated);
  for (const orStream_t each : {stream, side}) {
    SUCCEED(launch_count(each, &own));
    SUCCEED(orStreamSynchronize(each));
  }
  CHECK(own.count == 2);
}

// What all threads meet on: streams, and a graph.
struct Shared {
  orStream_t stream = make_stream();
  Counter on_stream;
  orGraph_t graph = nullptr;
  Counter in_graph;
  std::atomic<long> graph_launches{0};
};

// A capture that others may launch into, or break.
void capture_among_others(Shared* shared) {
  if (!ANSWERS(orStreamBeginCapture(shared->stream), orErrorNotPermitted)) {
    return;
  }
  ANSWERS(
      launch_count(shared->stream, &shared->on_stream),
      orErrorStreamCaptureInvalidated);
  orGraph_t graph = nullptr;
  if (ANSWERS(
          orStreamEndCapture(shared->stream, &graph),
          orErrorStreamCaptureInvalidated)) {
    SUCCEED(orGraphDestroy(graph));
  }
}

// A turn that began before a capture is no part of it.
void work_in_turn(Shared* shared) {
  if (!ANSWERS(
          orStreamBeginTurn(shared->stream, "turn"),
          orErrorStreamCaptureUnsupported,
          orErrorStreamCaptureInvalidated)) {
    return;
  }
  const long before = shared->on_stream.count;
  for (int times = 1; times <= 3; ++times) {
    SUCCEED(launch_count(shared->stream, &shared->on_stream));
    CHECK(shared->on_stream.count == before + times);
    std::this_thread::yield();
  }
  SUCCEED(orStreamSynchronize(shared->stream));
  SUCCEED(orStreamEndTurn(shared->stream));
}

void meet(Shared* shared, orStream_t own, unsigned choice) {
  switch (choice % 5) {
    case 0:
      capture_among_others(shared);
      return;
    case 1:
      work_in_turn(shared);
      return;
    case 2:
      ANSWERS(
          orStreamSynchronize(shared->stream),
          orErrorStreamCaptureUnsupported,
          orErrorStreamCaptureInvalidated);
      return;
    case 3:
      ++shared->graph_launches;
      SUCCEED(orGraphLaunch(shared->graph, own));
      return;
    default:
      ANSWERS(
          launch_count(shared->stream, &shared->on_stream),
          orErrorStreamCaptureInvalidated);
  }
}

void work(int thread, Shared* shared) {
  std::mt19937 chance(thread);
  SUCCEED(orSetDevice(thread % 2));
  const orStream_t stream = make_stream();
  const orStream_t side = make_stream();
  for (int round = 0; round < rounds; ++round) {
    meet(shared, stream, chance());
    if (round % 4 == 0) {
      launch_and_destroy(stream, side);
      break_a_capture(stream, side, chance());
    }
  }
  for (const orStream_t each : {stream, side}) {
    SUCCEED(orStreamSynchronize(each));
    SUCCEED(orStreamDestroy(each));
  }
}

orError_t fail_now_and_then(void* args) {
  static std::atomic<unsigned> times{0};
  ++static_cast<Counter*>(args)->count;
  return ++times % 7 == 0 ? orErrorLaunchFailure : orSuccess;
}

// A replay whose kernel fails ends, and so does its device until the reset.
void fail_and_reset(int thread, Shared* shared) {
  std::mt19937 chance(thread);
  SUCCEED(orSetDevice(1));
  const orStream_t stream = make_stream();
  for (int round = 0; round < rounds; ++round) {
    ANSWERS(
        orGraphLaunch(shared->graph, stream),
        orErrorLaunchFailure,
        orErrorDeviceFailed);
    if (chance() % 4 == 0) {
      SUCCEED(orDeviceReset());
    }
  }
  SUCCEED(orStreamDestroy(stream));
}

template <typename Body>
void on_threads(Body body, Shared* shared) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(body, thread, shared);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The work that all threads launch, by one graph.
void capture_shared(Shared* shared, orKernelFn kernel) {
  SUCCEED(orStreamBeginCapture(shared->stream));
  for (int times = 0; times < 2; ++times) {
    SUCCEED(orLaunchKernel(
        shared->stream, "shared", kernel, &shared->in_graph, nullptr));
  }
  SUCCEED(orStreamEndCapture(shared->stream, &shared->graph));
}

void synchronize_all() {
  for (const int device : {0, 1}) {
    SUCCEED(orSetDevice(device));
    SUCCEED(orDeviceSynchronize());
  }
}

std::atomic<long> replays_heard{0};

void hear(const orTraceRecord* record, void*) {
  replays_heard +=
      record->kind == orTraceGraph && record->phase == orTraceEnd ? 1 : 0;
}

void stress_graphs() {
  Shared shared;
  capture_shared(&shared, count);
  orSubscriber_t subscriber = nullptr;
  SUCCEED(orTraceSubscribe(&subscriber, hear, nullptr));
  on_threads(work, &shared);
  synchronize_all();
  SUCCEED(orTraceUnsubscribe(subscriber));
  CHECK(shared.in_graph.count == 2 * shared.graph_launches);
  // Of its own, each thread has launched four in every fourth round.
  CHECK(replays_heard == shared.graph_launches + kThreads * rounds);
  SUCCEED(orGraphDestroy(shared.graph));
  CHECK(owed == 0);
  std::puts("graphs replayed, nothing lost");
}

void stress_failure() {
  SUCCEED(orSetDevice(1));
  Shared shared;
  capture_shared(&shared, fail_now_and_then);
  on_threads(fail_and_reset, &shared);
  SUCCEED(orSetDevice(1));
  SUCCEED(orDeviceReset());
  SUCCEED(orGraphDestroy(shared.graph));
  std::puts("failures told, nothing lost");
}

}  // namespace

int main(int, char** arguments) {
  rounds = std::atoi(arguments[1]);
  stress_graphs();
  stress_failure();
}
