#include <cstdint>
#include <vector>

// An exercise of the chapter Events: events that can be recorded again. A
// stream is two counts here, of the work that was launched and of the work that
// is done. This event is reached only when its whole stream is idle, and a wait
// for it follows every later record. Let an event stand for the work that was
// launched before its record, and a wait for the record that came before it.
//
//   nox -s tests -- backend/tests/judge.py -k event_marks

namespace {

struct Stream {
  std::int64_t launched = 0;
  std::int64_t done = 0;
};
struct Event {
  const Stream* stream = nullptr;
};
Stream streams[2];
Event events[2];
std::vector<int> waits;

}  // namespace

extern "C" {

// The driver's part: work begins and ends in the order of its stream.
void launch(int stream) {
  ++streams[stream].launched;
}

void finish(int stream) {
  ++streams[stream].done;
}

void record(int event, int stream) {
  events[event].stream = &streams[stream];
}

// Whether the event is reached. One that was never recorded is.
bool query(int event) {
  const Stream* const stream = events[event].stream;
  return stream == nullptr || stream->done == stream->launched;
}

// Launches a wait for the event, and returns its number: 0, 1, 2 and so on.
int wait(int event) {
  waits.push_back(event);
  return static_cast<int>(waits.size()) - 1;
}

// Whether the stream that waits may go on.
bool is_over(int number) {
  return query(waits[number]);
}

}  // extern "C"

// expect: ok
