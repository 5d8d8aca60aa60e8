#include "csrc/runtime/generator.h"

#include <vector>

#include <ATen/CPUGeneratorImpl.h>

namespace openreg {
namespace {

// [generator-impl] A device's generator around one that CPU kernels can use.
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

  const at::Generator& inner() const {
    return inner_;
  }
  // [/generator-impl]

  // [generator-delegate] All that a generator is asked, the inner one answers.
  // Under its mutex, which is the one that a drawing kernel holds.
  template <typename Use>
  auto with_inner(Use&& use) const {
    auto* const inner = inner_.unsafeGetGeneratorImpl();
    std::lock_guard lock(inner->mutex_);
    return use(inner);
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

  // The engine has no offset: its whole state is what get_state returns. But
  // copying and pickling a generator ask for one, and give it back.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(
        offset == 0,
        "The generator of openreg has no offset; expected 0, got ",
        offset,
        ". Use set_state.");
  }
  uint64_t get_offset() const override {
    return 0;
  }

 private:
  OpenRegGenerator* clone_impl() const override {
    return with_inner([this](auto* inner) {
      return new OpenRegGenerator(
          device().index(), at::Generator(inner->clone()));
    });
  }

  const at::Generator inner_;
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

// [generator-default] Validate the index, then hand out the device's own.
const at::Generator& default_generator(c10::DeviceIndex device) {
  const c10::DeviceIndex index = resolve(device);
  return default_generators()[index];
}
// [/generator-default]

at::Generator make_generator(c10::DeviceIndex device) {
  return new_generator(resolve(device));
}

// [generator-inner] What a kernel draws from, and the check of the type.
const at::Generator& inner_generator(const at::Generator& generator) {
  return at::check_generator<OpenRegGenerator>(generator)->inner();
}
// [/generator-inner]

}  // namespace openreg
