#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/event.h"
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

// [guard-capability] Every dtype that the kernels can store and copy.
// The rest (bits8, uint1 to uint7) are names without arithmetic.
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
        kIndex_Float8_e8m0fnu,
        kIndex_QInt8,
        kIndex_QUInt8,
        kIndex_QInt32,
        kIndex_QUInt4x2,
        kIndex_QUInt2x4}) {
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

  // [guard-unchecked] For destructors, which must not throw.
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    // The device checks the index once more and keeps the error to itself.
    orSetDevice(device.index());
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }
  // [/guard-unchecked]

  // [guard-device-wide] The methods that concern a device as a whole.
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize_device(device);
  }

  c10::DeviceCapability getDeviceCapability(
      c10::Device /*device*/) const override {
    return capability();
  }
  // [/guard-device-wide]

  // [guard-streams] Each thread's current stream, and where streams come from.
  c10::Stream getStream(c10::Device device) const override {
    check_type(device);
    return get_stream(device.index());
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    return exchange_stream(stream);
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    check_type(device);
    return default_stream(device.index());
  }

  c10::Stream getStreamFromGlobalPool(
      c10::Device device, bool high_priority) const override {
    check_type(device);
    return pool_stream(device.index(), high_priority ? -1 : 0);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    check_type(device);
    return pool_stream(device.index(), priority);
  }
  // [/guard-streams]

  // [guard-stream-state] The methods that ask about a stream's state.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return handle_of(stream);
  }

  bool queryStream(const c10::Stream& stream) const override {
    return is_done(orStreamQuery(handle_of(stream)), "orStreamQuery");
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_stream(stream);
  }

  bool isStreamCapturing(const c10::Stream& stream) const override {
    return orStreamGetCapture(handle_of(stream)) != 0;
  }
  // [/guard-stream-state]

  // [guard-record] An event is made when it is first recorded.
  void record(
      void** event,
      const c10::Stream& stream,
      const c10::DeviceIndex device,
      const c10::EventFlag flag) const override {
    record_event(
        reinterpret_cast<orEvent_t*>(event),
        stream,
        device,
        flag == c10::EventFlag::BACKEND_DEFAULT);
  }

  void destroyEvent(
      void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    orEventDestroy(static_cast<orEvent_t>(event));
  }
  // [/guard-record]

  // [guard-events] An event that was never recorded counts as done.
  void block(void* event, const c10::Stream& stream) const override {
    wait_for_event(static_cast<orEvent_t>(event), stream);
  }

  bool queryEvent(void* event) const override {
    return event == nullptr ||
           is_done(orEventQuery(static_cast<orEvent_t>(event)), "orEventQuery");
  }

  void synchronizeEvent(void* event) const override {
    synchronize_event(static_cast<orEvent_t>(event));
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*device*/)
      const override {
    return elapsed_time(
        static_cast<orEvent_t>(start), static_cast<orEvent_t>(end));
  }
  // [/guard-events]

  // [guard-record-stream] The pool must not reuse what a stream still reads.
  void recordDataPtrOnStream(
      const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator()->recordStream(data, stream);
  }
  // [/guard-record-stream]
};

// [guard-register] Registered when the library is loaded, and never destroyed.
C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)
// [/guard-register]

}  // namespace
}  // namespace openreg
