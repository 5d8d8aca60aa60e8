#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "csrc/runtime/device.h"

// What the devices did while somebody profiled, and for whom.

namespace openreg {

// [recorder-piece] A kernel, copy or fill, or a wait of the host.
struct Piece {
  orTraceRecord launch{};  // whose name the recorder keeps
  uint64_t returned = 0;   // all times are of CLOCK_MONOTONIC; 0: not yet
  uint64_t started = 0;
  uint64_t ended = 0;
  uint64_t op = 0;     // the operator that was open where it was launched
  uint64_t range = 0;  // the same of record_function
};
// [/recorder-piece]

// [recorder-open] The operators and ranges that are running on a thread.
// A profile may end while operators are running, so each has its own.
struct OpenCalls {
  explicit OpenCalls(uint64_t number) : recorder(number) {}
  uint64_t recorder;
  std::vector<uint64_t> ops;
  std::vector<uint64_t> ranges;

  // Nothing is there of what began before the profile.
  static void end_last(std::vector<uint64_t>& open) {
    if (!open.empty()) {
      open.pop_back();
    }
  }
};
// [/recorder-open]

class Recorder {
 public:
  // Keeps so many bytes of pieces; the rest is counted and dropped.
  explicit Recorder(size_t bytes);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Answers why the device tells nothing, or nothing.
  std::string start();
  void stop();

  // What is open on this thread for this recorder.
  OpenCalls& open_calls() const;

  size_t most() const {
    return chunks_.size() * kChunk;
  }
  // Once it has stopped: all pieces, in the order of their launches.
  std::vector<const Piece*> pieces() const;
  uint64_t dropped() const {
    return dropped_;
  }

 private:
  static constexpr size_t kChunk = 512;
  using Chunk = std::array<Piece, kChunk>;

  static void hear(const orTraceRecord* record, void* recorder) noexcept;
  void note(const orTraceRecord& record);
  void note_graph(const orTraceRecord& record, const Piece& graph);
  Piece* find(uint64_t work);
  Chunk* make_chunk(size_t index);
  const char* keep(const char* name);

  const uint64_t number_;
  orSubscriber_t subscriber_ = nullptr;
  std::atomic<uint64_t> first_{0};
  std::atomic<uint64_t> dropped_{0};
  std::mutex mutex_;  // of all below
  std::unordered_set<std::string> names_;
  std::vector<std::atomic<Chunk*>> chunks_;
};

}  // namespace openreg
