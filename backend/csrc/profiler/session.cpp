#include "csrc/profiler/session.h"

#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

// From records of the device to rows of a trace.

namespace openreg {
namespace {

int64_t read_clock(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// [session-clock] The offset of two clocks, which cannot be read at once.
// So of many tries, the one that took least is the best.
int64_t measure_clock_offset() {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int i = 0; i < 64; ++i) {
    const int64_t before = read_clock(CLOCK_MONOTONIC);
    const int64_t wall = read_clock(CLOCK_REALTIME);
    const int64_t after = read_clock(CLOCK_MONOTONIC);
    if (after - before < least) {
      least = after - before;
      offset = wall - before - least / 2;
    }
  }
  return offset;
}
// [/session-clock]

// The call that launches each kind of work; a wait is a call itself.
const char* call_of(const orTraceRecord& launch) {
  static constexpr const char* kCalls[]{
      "orLaunchKernel",
      "orMemcpyAsync",
      "orMemsetAsync",
      "orLaunchHostFunc",
      "orStreamBeginTurn",
      nullptr,
      "orGraphLaunch"};
  static_assert(kCalls[orTraceWait] == nullptr);
  return launch.kind == orTraceWait ? launch.name : kCalls[launch.kind];
}

ActivityType type_of(orTraceKind kind) {
  return kind == orTraceCopy  ? ActivityType::GPU_MEMCPY
         : kind == orTraceSet ? ActivityType::GPU_MEMSET
                              : ActivityType::CONCURRENT_KERNEL;
}

// Devices stand below the host's threads.
libkineto::DeviceInfo describe(int device) {
  const std::string name = "openreg:" + std::to_string(device);
  return {device, device + libkineto::kExceedMaxPid, name, name};
}

}  // namespace

Session::Session(std::set<ActivityType> types, size_t bytes)
    : types_(std::move(types)),
      recorder_(bytes),
      buffer_(std::make_unique<libkineto::CpuTraceBuffer>()) {}

// [session-life] If the device cannot be traced, the host's profile remains.
void Session::start() {
  error_ = recorder_.start();
  status_ = error_.empty() ? libkineto::TraceStatus::RECORDING
                           : libkineto::TraceStatus::ERROR;
}

void Session::stop() {
  recorder_.stop();
  clock_offset_ = measure_clock_offset();
  stopped_ = read_clock(CLOCK_REALTIME);
  status_ = libkineto::TraceStatus::PROCESSING;
}
// [/session-life]

std::vector<std::string> Session::errors() {
  return error_.empty() ? std::vector<std::string>()
                        : std::vector<std::string>{error_};
}

// [session-bounded] The metadata says what a profile lacks.
std::unordered_map<std::string, std::string> Session::getMetadata() {
  uint64_t unfinished = 0;
  for (const Piece* piece : recorder_.pieces()) {
    unfinished += piece->launch.kind != orTraceWait && piece->ended == 0;
  }
  return {
      {"openreg_dropped", std::to_string(recorder_.dropped())},
      {"openreg_unfinished", std::to_string(unfinished)}};
}

void Session::warn_of_dropped() const {
  if (const uint64_t dropped = recorder_.dropped()) {
    TORCH_WARN(
        "The profile lacks ",
        dropped,
        " kernels, copies, fills and waits, since it holds ",
        recorder_.most(),
        " at most. Profile fewer steps, for instance with a schedule, or set "
        "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB.");
  }
}
// [/session-bounded]

int64_t Session::unix_time(uint64_t monotonic) const {
  return monotonic == 0 ? stopped_
                        : static_cast<int64_t>(monotonic) + clock_offset_;
}

// Tools look for these words.
const std::string Row::metadataJson() const {
  std::string json = fmt::format(
      R"("correlation": {}, "device": {})", launch.work, launch.device);
  if (launch.kind != orTraceWait || launch.stream != 0) {
    json += fmt::format(R"(, "stream": {})", launch.stream);
  }
  if (launch.bytes != 0) {
    json += fmt::format(R"(, "bytes": {})", launch.bytes);
  }
  return json;
}

// [session-link] A row belongs to the running operator, or else the range.
Row* Session::add_row(
    ActivityType type, const std::string& name, const Piece& piece) {
  auto made = std::make_unique<Row>(buffer_->span, type, name);
  Row* const row = made.get();
  buffer_->activities.push_back(std::move(made));
  row->launch = piece.launch;
  for (const uint64_t id : {piece.op, piece.range}) {
    const auto* const activity = id == 0 ? nullptr : linked_(id);
    if (activity != nullptr) {
      row->linked = activity;
      row->id = static_cast<int32_t>(id);
      break;
    }
  }
  return row;
}
// [/session-link]

// [session-call] What the host did: a row of the thread that called.
void Session::add_call(const Piece& piece, uint32_t flow) {
  const orTraceRecord& launch = piece.launch;
  Row* const row =
      add_row(ActivityType::PRIVATEUSE1_RUNTIME, call_of(launch), piece);
  row->startTime = unix_time(launch.time_ns);
  row->endTime =
      unix_time(launch.kind == orTraceTurn ? piece.started : piece.returned);
  row->device = getpid();
  row->resource = row->threadId = launch.thread;
  if (flow != 0) {
    row->flow.id = flow;
    row->flow.type = libkineto::kLinkAsyncCpuGpu;
    row->flow.start = 1;
  }
}
// [/session-call]

// [session-work] What the device did: a row of its stream.
// The arrow comes from the call with the same flow.
void Session::add_work(const Piece& piece, uint32_t flow) {
  const orTraceRecord& launch = piece.launch;
  const Place place(launch.device, static_cast<int32_t>(launch.stream));
  Row* const row = add_row(type_of(launch.kind), launch.name, piece);
  row->startTime = unix_time(piece.started);
  row->endTime = unix_time(piece.ended);
  std::tie(row->device, row->resource) = place;
  row->flow.id = flow;
  row->flow.type = libkineto::kLinkAsyncCpuGpu;
  places_.insert(place);
  if (piece.range != 0) {
    auto [entry, is_new] =
        ranges_.try_emplace({piece.range, place}, row->startTime, row->endTime);
    auto& [from, to] = entry->second;
    from = std::min(from, row->startTime);
    to = std::max(to, row->endTime);
  }
}
// [/session-work]

// A range spans on each stream what was launched in it.
void Session::add_ranges() {
  for (const auto& [key, span] : ranges_) {
    const auto& [id, place] = key;
    if (const auto* const range = linked_(id)) {
      auto row = std::make_unique<libkineto::GenericTraceActivity>(
          buffer_->span, ActivityType::GPU_USER_ANNOTATION, range->name());
      std::tie(row->startTime, row->endTime) = span;
      std::tie(row->device, row->resource) = place;
      row->id = static_cast<int32_t>(id);
      buffer_->activities.push_back(std::move(row));
    }
  }
}

void Session::processTrace(libkineto::ActivityLogger& logger) {
  processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
}

// [session-process] `linked` finds the host's row by an operator's number.
void Session::processTrace(
    libkineto::ActivityLogger& logger,
    libkineto::getLinkedActivityCallback linked,
    int64_t start,
    int64_t /*end*/) {
  linked_ = std::move(linked);
  uint32_t flow = 0;
  for (const Piece* piece : recorder_.pieces()) {
    ++flow;
    const bool has_run =
        piece->ended != 0 && piece->launch.kind != orTraceGraph;
    add_call(*piece, has_run ? flow : 0);
    if (has_run) {
      add_work(*piece, flow);
    }
  }
  add_ranges();
  linked_ = nullptr;
  warn_of_dropped();
  int named = places_.empty() ? 0 : places_.begin()->first;
  for (const auto& [device, stream] : places_) {
    if (device != std::exchange(named, device)) {
      logger.handleDeviceInfo(describe(device), start);
    }
  }
  for (const auto& row : buffer_->activities) {
    if (types_.count(row->type()) != 0) {
      logger.handleActivity(*row);
    }
  }
}
// [/session-process]

// [session-names] Rows are named by device and stream.
// Kineto asks for one device; the others have been named with their rows.
std::unique_ptr<libkineto::DeviceInfo> Session::getDeviceInfo() {
  return places_.empty() ? nullptr
                         : std::make_unique<libkineto::DeviceInfo>(
                               describe(places_.begin()->first));
}

std::vector<libkineto::ResourceInfo> Session::getResourceInfos() {
  std::vector<libkineto::ResourceInfo> infos;
  for (const auto& [device, stream] : places_) {
    infos.push_back(
        {stream,
         stream,
         device,
         stream == 0 ? "default stream" : "stream " + std::to_string(stream)});
  }
  return infos;
}
// Kineto has its rows by address, so they live as long as the trace.
std::unique_ptr<libkineto::CpuTraceBuffer> Session::getTraceBuffer() {
  return std::move(buffer_);
}
// [/session-names]

// [session-correlation] PyTorch tells which operators and ranges are running.
void Session::pushCorrelationId(uint64_t id) {
  recorder_.open_calls().ops.push_back(id);
}

void Session::popCorrelationId() {
  OpenCalls::end_last(recorder_.open_calls().ops);
}

void Session::pushUserCorrelationId(uint64_t id) {
  recorder_.open_calls().ranges.push_back(id);
}

void Session::popUserCorrelationId() {
  OpenCalls::end_last(recorder_.open_calls().ranges);
}
// [/session-correlation]

}  // namespace openreg
