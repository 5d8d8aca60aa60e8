#include <atomic>
#include <cstdint>

// An exercise of the chapter Streams: a pool that hands out streams, each known
// by its id. This pool makes a stream for every request, without an end. Give
// each device 32 streams of normal priority and 32 of high priority, and hand
// them out in turn. The id must tell the priority, and 0 remains the default
// stream's. Several threads may ask at once.
//
//   nox -s tests -- backend/tests/judge.py -k next_stream

namespace {

constexpr int device_count = 2;  // PyTorch passes no other device
std::atomic<std::int64_t> made{0};

}  // namespace

extern "C" {

// The id of a stream of `device`.
std::int64_t next_stream(int /*device*/, bool /*high*/) {
  return ++made;
}

// Whether a stream has the high priority.
bool is_high(std::int64_t /*stream*/) {
  return false;
}

}  // extern "C"

// expect: ok
