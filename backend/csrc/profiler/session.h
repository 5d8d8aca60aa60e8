#pragma once

#include <libkineto.h>
#include <output_base.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "csrc/profiler/recorder.h"

// One profile, as Kineto sees it.

namespace openreg {

using libkineto::ActivityType;

// A row of a trace, with little beside what Kineto has in each.
struct Row final : libkineto::GenericTraceActivity {
  using GenericTraceActivity::GenericTraceActivity;
  const std::string metadataJson() const override;

  orTraceRecord launch{};  // of the work, or of the wait
};

class Session final : public libkineto::IActivityProfilerSession {
 public:
  // `bytes` is how much it may keep of what the devices do.
  Session(std::set<ActivityType> types, size_t bytes);

  void start() override;
  void stop() override;
  std::vector<std::string> errors() override;

  // What follows is asked in this order, once it has stopped.
  std::unordered_map<std::string, std::string> getMetadata() override;
  void processTrace(libkineto::ActivityLogger& logger) override;
  void processTrace(
      libkineto::ActivityLogger& logger,
      libkineto::getLinkedActivityCallback linked,
      int64_t start,
      int64_t end) override;
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override;
  std::vector<libkineto::ResourceInfo> getResourceInfos() override;
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override;

  // On the thread of an operator or a range, as it begins and as it ends.
  void pushCorrelationId(uint64_t id) override;
  void popCorrelationId() override;
  void pushUserCorrelationId(uint64_t id) override;
  void popUserCorrelationId() override;

 private:
  using Place = std::pair<int32_t, int32_t>;  // a device and a stream there

  Row* add_row(ActivityType type, const std::string& name, const Piece& piece);
  void add_call(const Piece& piece, uint32_t flow);
  void add_work(const Piece& piece, uint32_t flow);
  void add_ranges();
  void warn_of_dropped() const;
  int64_t unix_time(uint64_t monotonic) const;

  const std::set<ActivityType> types_;
  Recorder recorder_;
  std::string error_;
  int64_t clock_offset_ = 0;  // of the wall clock to CLOCK_MONOTONIC
  int64_t stopped_ = 0;       // by the wall clock
  libkineto::getLinkedActivityCallback linked_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::set<Place> places_;  // where something ran
  // What a record_function range spans on a stream.
  std::map<std::pair<uint64_t, Place>, std::pair<int64_t, int64_t>> ranges_;
};

}  // namespace openreg
