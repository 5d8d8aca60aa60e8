#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "csrc/runtime/stream.h"

// How PyTorch's device-independent code moves between devices: c10::DeviceGuard
// looks up, by device type, the one object registered below.

namespace openreg {
namespace {

constexpr auto device_type = c10::DeviceType::PrivateUse1;

// [guard-type] A guard refuses devices of another type.
// A cuda:1 taken for an openreg:1 would be wrong without a word.
void check_type(c10::Device device) {
  TORCH_CHECK(
      device.type() == device_type,
      "The guard of ",
      c10::Device(device_type),
      " devices was given the device ",
      device,
      ".");
}
// [/guard-type]

c10::Stream default_stream(c10::Device device) {
  check_type(device);
  const auto index = device.has_index() ? device.index() : current_device();
  check_device(index);
  return c10::Stream(c10::Stream::DEFAULT, c10::Device(device_type, index));
}

// The device of `stream`, which must be that device's default stream.
c10::DeviceIndex check_stream(c10::Stream stream) {
  const c10::Stream expected = default_stream(stream.device());
  TORCH_CHECK(
      stream == expected,
      "There is no stream ",
      stream.id(),
      " on ",
      stream.device(),
      ", which has only its default stream, 0.");
  return expected.device_index();
}

// [guard-capability] Every dtype that the kernels can store and copy.
// Quantized types have no kernels here, and the rest (bits8, uint1 to uint7)
// are names without arithmetic.
c10::DeviceCapability capability() {
  using enum c10::ScalarTypeIndex;
  c10::DeviceCapability result;
  auto& bits = result.capability_data.capability_bits;
  bits = 0;
  for (const auto type :
       {kIndex_Bool,
        kIndex_Byte,
        kIndex_Char,
        kIndex_Short,
        kIndex_Int,
        kIndex_Long,
        kIndex_UInt16,
        kIndex_UInt32,
        kIndex_UInt64,
        kIndex_Half,
        kIndex_BFloat16,
        kIndex_Float,
        kIndex_Double,
        kIndex_ComplexHalf,
        kIndex_ComplexFloat,
        kIndex_ComplexDouble,
        kIndex_Float8_e5m2,
        kIndex_Float8_e4m3fn,
        kIndex_Float8_e5m2fnuz,
        kIndex_Float8_e4m3fnuz,
        kIndex_Float8_e8m0fnu}) {
    bits |= uint64_t{1} << type;
  }
  return result;
}
// [/guard-capability]

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  // [guard-devices] The methods that every device guard calls.
  c10::DeviceType type() const override {
    return device_type;
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    check_type(device);
    return c10::Device(device_type, exchange_device(device.index()));
  }

  c10::Device getDevice() const override {
    return c10::Device(device_type, current_device());
  }

  void setDevice(c10::Device device) const override {
    check_type(device);
    set_device(device.index());
  }
  // [/guard-devices]

  // [guard-unchecked] For destructors, which must not raise.
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    // The device checks the index once more and keeps the error to itself.
    orSetDevice(device.index());
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }
  // [/guard-unchecked]

  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize_device(device);
  }

  c10::DeviceCapability getDeviceCapability(
      c10::Device /*device*/) const override {
    return capability();
  }

  // [guard-streams] So far a device has its default stream alone.
  c10::Stream getStream(c10::Device device) const override {
    return default_stream(device);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    check_stream(stream);
    return stream;  // which is the one that was current
  }
  // [/guard-streams]

  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device);
  }

  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return current_stream(check_stream(stream));
  }

  bool queryStream(const c10::Stream& stream) const override {
    check_stream(stream);
    return true;  // A kernel ends before its launch returns.
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_device(check_stream(stream));
  }
};

// [guard-register] Registered when the library is loaded, and never destroyed.
C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)
// [/guard-register]

}  // namespace
}  // namespace openreg
