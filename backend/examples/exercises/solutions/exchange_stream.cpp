#include <cstdint>
#include <utility>

// [exchange-stream-solution] Each thread has a current stream for each device.
namespace {

constexpr int device_count = 2;
thread_local std::int64_t current[device_count] = {};

}  // namespace

extern "C" {

std::int64_t get_stream(int device) {
  return current[device];
}

std::int64_t exchange_stream(int device, std::int64_t stream) {
  return std::exchange(current[device], stream);
}

}  // extern "C"
// [/exchange-stream-solution]

// expect: ok
