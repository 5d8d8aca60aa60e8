#include <torch/csrc/profiler/standalone/privateuse1_observer.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <c10/core/DeviceGuard.h>
#include <c10/util/ApproximateClock.h>

#include "csrc/runtime/event.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

// What the older profiler asks of a device: an event before each operator and
// one after it.

namespace openreg {
namespace {

using Event = torch::profiler::impl::ProfilerVoidEventStub;

orEvent_t handle_of(const Event& event) {
  return static_cast<orEvent_t>(event.get());
}

[[noreturn]] void refuse_ranges() {
  C10_THROW_ERROR(
      NotImplementedError,
      "openreg: there is no vendor's profiler that ranges could be sent to. "
      "Use torch.profiler.profile, whose traces have record_function's.");
}

// [stubs-methods] Times an operator by an event before and one after it.
Event take_time(c10::Stream stream) {
  orEvent_t made = nullptr;
  record_event(&made, stream, stream.device_index(), true);
  return Event(made, [](void* handle) {
    orEventDestroy(static_cast<orEvent_t>(handle));
  });
}

float microseconds(orEvent_t first, orEvent_t last) {
  synchronize_event(first);
  synchronize_event(last);
  return static_cast<float>(1000 * elapsed_time(first, last));
}
// [/stubs-methods]

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(
      c10::DeviceIndex* device, Event* event, int64_t* cpu_ns) const override {
    const c10::Stream stream = get_stream(-1);
    *event = take_time(stream);
    if (device != nullptr) {
      *device = stream.device_index();
    }
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
  }

  float elapsed(const Event* first, const Event* last) const override {
    return microseconds(handle_of(*first), handle_of(*last));
  }

  bool enabled() const override {
    return true;
  }

  void onEachDevice(std::function<void(int)> visit) const override {
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
      visit(device);
    }
  }

  void synchronize() const override {
    synchronize_device(current_device());
  }

  void mark(const char*) const override {
    refuse_ranges();
  }
  void rangePush(const char*) const override {
    refuse_ranges();
  }
  void rangePop() const override {
    refuse_ranges();
  }
};

// [stubs-register] Registers both, since PyTorch would call a NULL observer.
const bool registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);
  return true;
}();

using torch::profiler::impl::RegisterPRIVATEUSE1Observer;
REGISTER_PRIVATEUSE1_OBSERVER([](const auto& /*config*/,
                                 const auto& /*scopes*/) { refuse_ranges(); })
// [/stubs-register]

}  // namespace
}  // namespace openreg
