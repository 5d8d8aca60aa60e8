#include <iostream>
#include <thread>

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

// A guard for a toy device: the eight methods that must be written, and what
// PyTorch says where one of the others is asked for. FPGA is a device type for
// which PyTorch has no guard of its own.

namespace {

// [toy-guard-driver] What the vendor has: a number for each thread.
constexpr int device_count = 3;
thread_local int current = 0;

bool toy_set_device(int device) {
  const bool valid = 0 <= device && device < device_count;
  if (valid) {
    current = device;
  }
  return valid;
}
// [/toy-guard-driver]

// [toy-guard-impl] The smallest guard that PyTorch accepts.
constexpr auto toy = c10::DeviceType::FPGA;

struct ToyGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return toy;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count;
  }
  c10::Device getDevice() const override {
    return {toy, static_cast<c10::DeviceIndex>(current)};
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == toy, "not a toy: ", device);
    TORCH_CHECK(toy_set_device(device.index()), "no such toy: ", device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    toy_set_device(device.index());
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(
        c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
};

C10_REGISTER_GUARD_IMPL(FPGA, ToyGuard)
// [/toy-guard-impl]

template <typename Use>
void attempt(const char* name, Use&& use) {
  std::cout << name << ": ";
  try {
    use();
    std::cout << "no error\n";
  } catch (const c10::Error& error) {
    std::cout << error.what_without_backtrace() << '\n';
  }
}

// [toy-guard-devices] Changes the device and restores it, on every path.
void devices() {
  const auto where = [] {
    return c10::impl::getDeviceGuardImpl(toy)->getDevice();
  };
  {
    const c10::DeviceGuard guard({toy, 2});
    std::cout << "inside " << where() << '\n';
    std::thread([&] { std::cout << "a thread " << where() << '\n'; }).join();
  }
  std::cout << "outside " << where() << '\n';
  attempt("leave by an error", [] {
    const c10::DeviceGuard guard({toy, 1});
    TORCH_CHECK(false, "something went wrong");
  });
  attempt("no such device", [] { const c10::DeviceGuard guard({toy, 7}); });
  std::cout << "outside " << where() << '\n';
}
// [/toy-guard-devices]

// [toy-guard-defaults] Each optional method, called on a guard that lacks it.
void defaults() {
  const auto* guard = c10::impl::getDeviceGuardImpl(toy);
  const c10::Stream stream = guard->getStream({toy, 0});
  void* event = nullptr;
  attempt("getDefaultStream", [&] { guard->getDefaultStream({toy, 0}); });
  attempt("getStreamFromGlobalPool", [&] {
    guard->getStreamFromGlobalPool({toy, 0});
  });
  attempt("getNewStream", [&] { guard->getNewStream({toy, 0}); });
  attempt(
      "getStreamNativeHandle", [&] { guard->getStreamNativeHandle(stream); });
  attempt("queryStream", [&] { guard->queryStream(stream); });
  attempt("synchronizeStream", [&] { guard->synchronizeStream(stream); });
  attempt("isStreamCapturing", [&] { guard->isStreamCapturing(stream); });
  attempt("record", [&] {
    guard->record(&event, stream, 0, c10::EventFlag::PYTORCH_DEFAULT);
  });
  attempt("block", [&] { guard->block(event, stream); });
  attempt("queryEvent", [&] { guard->queryEvent(event); });
  attempt("synchronizeEvent", [&] { guard->synchronizeEvent(event); });
  attempt("elapsedTime", [&] { guard->elapsedTime(event, event, 0); });
  attempt("destroyEvent", [&] { guard->destroyEvent(event, 0); });
  attempt("synchronizeDevice", [&] { guard->synchronizeDevice(0); });
  attempt("recordDataPtrOnStream", [&] {
    guard->recordDataPtrOnStream(c10::DataPtr(), stream);
  });
  attempt("getDeviceCapability", [&] { guard->getDeviceCapability({toy, 0}); });
}
// [/toy-guard-defaults]

// What devices() and defaults() do not ask.
void rest() {
  const auto* guard = c10::impl::getDeviceGuardImpl(toy);
  TORCH_CHECK(guard->type() == toy && guard->deviceCount() == device_count);
  const c10::Stream stream = guard->getStream({toy, 1});
  TORCH_CHECK(guard->exchangeStream(stream) == stream);
}

}  // namespace

int main() {
  devices();
  rest();
  defaults();
}

// expect: ok
