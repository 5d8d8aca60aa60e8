#include "csrc/runtime/generator.h"

#include <vector>

#include <ATen/CPUGeneratorImpl.h>

namespace openreg {

void (*before_state_access)(c10::DeviceIndex) = [](c10::DeviceIndex) {};

namespace {

// [generator-impl] The device's generator wraps one that CPU kernels can use.
// Equal seeds therefore give equal numbers on the device and on the CPU.
class OpenRegGenerator final : public c10::GeneratorImpl {
 public:
  OpenRegGenerator(c10::DeviceIndex device, at::Generator inner)
      : GeneratorImpl(
            c10::Device(c10::kPrivateUse1, device),
            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        inner_(std::move(inner)) {}

  static c10::DeviceType device_type() {
    return c10::kPrivateUse1;
  }
  // [/generator-impl]

  // [generator-delegate] Every call is passed on to the inner generator.
  // Under its mutex, which is the one that a drawing kernel holds.
  template <typename Use>
  auto with_inner(Use&& use) const {
    before_state_access(device().index());
    at::Generator generator = inner();
    std::lock_guard lock(generator.mutex());
    return use(generator.unsafeGetGeneratorImpl());
  }

  void set_current_seed(uint64_t seed) override {
    with_inner([&](auto* inner) { inner->set_current_seed(seed); });
  }
  uint64_t current_seed() const override {
    return with_inner([](auto* inner) { return inner->current_seed(); });
  }
  uint64_t seed() override {
    return with_inner([](auto* inner) { return inner->seed(); });
  }
  void set_state(const c10::TensorImpl& state) override {
    with_inner([&](auto* inner) { inner->set_state(state); });
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return with_inner([](auto* inner) { return inner->get_state(); });
  }
  // [/generator-delegate]

  // [generator-offset] It has no offset, but copying and pickling ask for one.
  // The engine's whole state is what get_state returns.
  uint64_t get_offset() const override {
    return 0;
  }
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(
        offset == 0,
        "The generator of openreg has no offset; expected 0, got ",
        offset,
        ". Use set_state.");
  }
  // [/generator-offset]

  // [generator-graphsafe] A state that is passed by reference, not copied.
  // The generator that is returned shares the inner one: what either draws, or
  // is seeded with, both have drawn and have been seeded with.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<OpenRegGenerator>(device().index(), inner());
  }
  void graphsafe_set_state(
      const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    set_inner(inner_generator(at::Generator(state), device().index()));
  }
  // [/generator-graphsafe]

  // [generator-inner] The inner generator may be replaced while a kernel draws.
  // A kernel takes a reference once and draws from that.
  at::Generator inner() const {
    std::lock_guard lock(inner_mutex_);
    return inner_;
  }

 private:
  void set_inner(at::Generator inner) {
    std::lock_guard lock(inner_mutex_);
    std::swap(inner_, inner);
  }

  mutable std::mutex inner_mutex_;  // protects the reference alone
  at::Generator inner_;
  // [/generator-inner]

  // [generator-clone] A copy that is independent from then on.
  OpenRegGenerator* clone_impl() const override {
    return with_inner([this](auto* inner) {
      return new OpenRegGenerator(
          device().index(), at::Generator(inner->clone()));
    });
  }
  // [/generator-clone]
};

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<OpenRegGenerator>(
      device, at::detail::createCPUGenerator());
}

// Leaked on purpose: a late user may outlive static destructors.
std::vector<at::Generator>& default_generators() {
  static auto* const generators = [] {
    auto* all = new std::vector<at::Generator>;
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      all->push_back(new_generator(device));
    }
    return all;
  }();
  return *generators;
}

c10::DeviceIndex resolve(c10::DeviceIndex device) {
  const auto index = device == -1 ? current_device() : device;
  check_device(index);
  return index;
}

}  // namespace

// [generator-default] Checks the index, then returns the device's generator.
const at::Generator& default_generator(c10::DeviceIndex device) {
  return default_generators()[resolve(device)];
}
// [/generator-default]

at::Generator make_generator(c10::DeviceIndex device) {
  return new_generator(resolve(device));
}

// [generator-check] Returns the inner generator, after two checks.
at::Generator inner_generator(
    const at::Generator& generator, c10::DeviceIndex device) {
  const auto* const impl = at::check_generator<OpenRegGenerator>(generator);
  TORCH_CHECK(
      impl->device().index() == device,
      "Expected a '",
      c10::Device(c10::kPrivateUse1, device),
      "' generator device but found '",
      impl->device(),
      "'");
  return impl->inner();
}
// [/generator-check]

}  // namespace openreg
