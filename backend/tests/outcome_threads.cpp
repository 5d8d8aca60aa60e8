// What kernels tell of a collective, and what its callers hear: two kernels end
// while one thread waits, one polls and one has a stream rely on the result.
// Whichever comes first, an error is never silent. The header has no PyTorch,
// so that a sanitizer sees all of it.
//
// Its argument is the number of rounds.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include "csrc/distributed/outcome.h"
#include "tests/device_check.h"

namespace {

using openreg::Outcome;

// Returns whether `step` raised.
template <typename Step>
bool raises(Step&& step) {
  try {
    step();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

void run_round(bool fails, bool dropped) {
  Outcome outcome;
  outcome.expect(2);
  std::atomic<bool> kernel_raised{false}, caller_raised{false};
  const auto error = std::make_exception_ptr(std::runtime_error("a peer"));
  std::vector<std::thread> threads;
  threads.emplace_back([&] { outcome.finish(nullptr); });
  threads.emplace_back([&] {
    if (dropped) {
      outcome.give_up();
    } else {
      kernel_raised = raises([&] { outcome.finish(fails ? error : nullptr); });
    }
  });
  threads.emplace_back(
      [&] { caller_raised = raises([&] { outcome.promise(); }); });
  threads.emplace_back([&] {
    CHECK(outcome.wait(std::chrono::milliseconds(0)));
    CHECK((outcome.error() != nullptr) == (fails || dropped));
  });
  threads.emplace_back([&] {
    while (!outcome.is_finished()) {
      std::this_thread::yield();
    }
  });
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(!fails || dropped || kernel_raised != caller_raised);
  CHECK(fails || dropped || (!kernel_raised && !caller_raised));
}

}  // namespace

int main(int, char** arguments) {
  const int rounds = std::atoi(arguments[1]);
  for (int round = 0; round < rounds; ++round) {
    run_round(round % 2 == 1, round % 3 == 2);
  }
}
