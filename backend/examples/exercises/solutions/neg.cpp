#include <cstdint>

// [neg-solution] Steps in bytes, and a minus that also turns the sign of 0.
extern "C" void neg(
    char** data, const std::int64_t* strides, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    auto* const to = reinterpret_cast<float*>(data[0] + i * strides[0]);
    *to = -*reinterpret_cast<const float*>(data[1] + i * strides[1]);
  }
}
// [/neg-solution]

// expect: ok
