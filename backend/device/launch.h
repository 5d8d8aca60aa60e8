#pragma once

#include "device/device.h"
#include "device/trace.h"

// How all work comes to a stream.

namespace emulator {

// Leaves work to the stream's worker. May throw.
orError_t queue(const StreamRef& stream, Work&& work);

// Runs work on this thread, whatever it is, and answers what it answered.
orError_t run_work(const Work& work);

// What a kernel that this thread has just run said about its failure.
std::string complaint(const char* otherwise);

// Runs work on a stream's worker, or drops it where the device has failed.
void run_queued(orStream& stream, const Work& work);

// A kernel that fails at the call is its caller's business alone.
orError_t report_kernel(const orStream& at, const char* name, orError_t error);

// Work that calls a copy of `task`, which is on the heap.
template <typename Task>
Work pack(const Label& label, Task task) {
  const auto run = [](void* args) {
    return (*static_cast<const Task*>(args))();
  };
  const auto release = [](void* args) { delete static_cast<Task*>(args); };
  return {label, run, nullptr, Arguments(new Task(std::move(task)), release)};
}

// [dev-run-or-queue] Runs work at once if it can have its turn, else queues it.
// What is packed has the label with what was announced.
template <typename Body, typename Pack>
orError_t launch(
    const StreamRef& stream,
    Label& label,
    bool must_run_here,
    Body&& body,
    Pack&& pack) {
  if (is_capturing(*stream) && !must_run_here) [[unlikely]] {
    return queue(stream, pack());
  }
  const Announced announced(*stream, &label);
  const Result<Claim> claimed = claim(*stream, label.name, must_run_here);
  if (!claimed) [[unlikely]] {
    return claimed.error();
  }
  if (claimed.value() == Claim::kLater) [[unlikely]] {
    return queue(stream, pack());
  }
  const orError_t answer = run(*stream, label, body);
  end_turn(*stream);
  return answer == orSuccess ? orSuccess
                             : report_kernel(*stream, label.name, answer);
}
// [/dev-run-or-queue]

}  // namespace emulator
