#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include "csrc/profiler/session.h"

// What PyTorch is told of the profiler.

namespace openreg {
namespace {

// Kineto makes one of it, and asks it for each profile.
class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "openreg";
    return name;
  }

  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types{
        ActivityType::CONCURRENT_KERNEL,
        ActivityType::GPU_MEMCPY,
        ActivityType::GPU_MEMSET,
        ActivityType::GPU_USER_ANNOTATION,
        ActivityType::PRIVATEUSE1_RUNTIME};
    return types;
  }

  // [profiler-register] A profile of the host alone gets no device session.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    if (types.count(ActivityType::CONCURRENT_KERNEL) == 0 &&
        types.count(ActivityType::GPU_MEMCPY) == 0) {
      return nullptr;
    }
    return std::make_unique<Session>(
        types, config.activitiesMaxGpuBufferSize());
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t /*start*/,
      int64_t /*duration*/,
      const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);
// [/profiler-register]

}  // namespace
}  // namespace openreg
