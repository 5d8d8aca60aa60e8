#include "csrc/profiler/recorder.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

// Records come from every thread that launches or runs work, so a piece is
// found without a lock: the device numbers its work, and the number is a place.

namespace openreg {

static std::atomic<uint64_t> last_recorder{0};

Recorder::Recorder(size_t bytes)
    : number_(++last_recorder), chunks_(bytes / sizeof(Chunk) + 1) {}

Recorder::~Recorder() {
  stop();
  for (const auto& chunk : chunks_) {
    delete chunk.load();
  }
}

std::string Recorder::start() {
  const orError_t error = orTraceSubscribe(&subscriber_, &Recorder::hear, this);
  if (error == orSuccess) {
    return {};
  }
  const std::string why =
      c10::str(orGetErrorName(error), ": ", orGetErrorDetail());
  orGetLastError();
  TORCH_WARN("The profile will lack the device's work. ", why);
  return why;
}

// In a forked child there is no device to ask, and nobody who calls.
void Recorder::stop() {
  if (subscriber_ != nullptr &&
      orTraceUnsubscribe(std::exchange(subscriber_, nullptr)) != orSuccess) {
    orGetLastError();
  }
}

// Behind a pointer, since the room for a library's thread-local variables is
// small where some of them, as here, have to be fast.
OpenCalls& Recorder::open_calls() const {
  static thread_local std::unique_ptr<OpenCalls> calls;
  if (calls == nullptr || calls->recorder != number_) {
    calls = std::make_unique<OpenCalls>(number_);
  }
  return *calls;
}

// [recorder-find] The first number that arrives need not be the lowest.
// As many threads as kMargin may have launched at that moment.
Piece* Recorder::find(uint64_t work) {
  constexpr uint64_t kMargin = 1024;
  uint64_t first = first_.load(std::memory_order_acquire);
  if (first == 0) {
    const uint64_t low = std::max(work, kMargin + 1) - kMargin;
    first = first_.compare_exchange_strong(first, low) ? low : first;
  }
  const uint64_t place = work - first;
  if (place >= most()) {
    return nullptr;
  }
  Chunk* chunk = chunks_[place / kChunk].load(std::memory_order_acquire);
  if (chunk == nullptr) {
    chunk = make_chunk(place / kChunk);
  }
  return &(*chunk)[place % kChunk];
}
// [/recorder-find]

Recorder::Chunk* Recorder::make_chunk(size_t index) {
  const std::lock_guard lock(mutex_);
  auto& chunk = chunks_[index];
  if (chunk.load() == nullptr) {
    chunk.store(new Chunk);
  }
  return chunk;
}

// The device's name is valid during the call alone.
const char* Recorder::keep(const char* name) {
  const std::lock_guard lock(mutex_);
  return names_.insert(name).first->c_str();
}

// [recorder-graph] A graph's nodes belong to the operator that launched it.
// They are launched between its start and its end, on the thread that runs it.
void Recorder::note_graph(const orTraceRecord& record, const Piece& graph) {
  OpenCalls& open = open_calls();
  if (record.phase == orTraceStart) {
    open.ops.push_back(graph.op);
    open.ranges.push_back(graph.range);
  } else if (record.phase == orTraceEnd) {
    OpenCalls::end_last(open.ops);
    OpenCalls::end_last(open.ranges);
  }
}
// [/recorder-graph]

// [recorder-note] No lock, as only one thread at a time writes each field.
void Recorder::note(const orTraceRecord& record) {
  Piece* const piece = find(record.work);
  if (piece == nullptr) {
    dropped_ += record.phase == orTraceLaunch;
    return;
  }
  if (record.kind == orTraceGraph) {
    note_graph(record, *piece);
  }
  switch (record.phase) {
    case orTraceLaunch: {
      const OpenCalls& open = open_calls();
      piece->launch = record;
      piece->launch.name = keep(record.name);
      piece->op = open.ops.empty() ? 0 : open.ops.back();
      piece->range = open.ranges.empty() ? 0 : open.ranges.back();
      return;
    }
    case orTraceStart:
      piece->started = record.time_ns;
      return;
    case orTraceEnd:
      piece->ended = record.time_ns;
      return;
    case orTraceReturn:
      piece->returned = record.time_ns;
      return;
  }
}
// [/recorder-note]

void Recorder::hear(const orTraceRecord* record, void* recorder) noexcept {
  auto* const self = static_cast<Recorder*>(recorder);
  try {
    self->note(*record);
  } catch (const std::bad_alloc&) {
    self->dropped_ += record->phase == orTraceLaunch;
  }
}

std::vector<const Piece*> Recorder::pieces() const {
  std::vector<const Piece*> found;
  for (const auto& entry : chunks_) {
    if (const Chunk* const chunk = entry.load()) {
      for (const Piece& piece : *chunk) {
        if (piece.launch.name != nullptr) {
          found.push_back(&piece);
        }
      }
    }
  }
  return found;
}

}  // namespace openreg
