#include <cstdint>

// An exercise of the chapter Stubs: the loop of `neg` for float. An iterator
// of PyTorch calls such a loop for one dimension: data[0] is where the result
// begins and data[1] the argument, strides has the step of each in bytes, and
// count is the number of elements. This one reads and writes without gaps.
//
//   nox -s tests -- backend/tests/judge.py -k neg

extern "C" void neg(
    char** data, const std::int64_t* /*strides*/, std::int64_t count) {
  auto* const to = reinterpret_cast<float*>(data[0]);
  const auto* const from = reinterpret_cast<const float*>(data[1]);
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = 0 - from[i];
  }
}

// expect: ok
