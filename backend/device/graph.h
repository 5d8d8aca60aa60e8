#pragma once

#include <memory>
#include <vector>

#include "device/error.h"

// Work that is kept instead of run, and then run again and again.

struct orStream;

namespace emulator {

class Moment;
struct Capture;
struct Device;
struct Work;

// How far a stream has come in a capture: its next node comes after these.
struct Branch {
  std::shared_ptr<Capture> capture;
  std::vector<size_t> after;
};

// Makes work a node of the capture of `stream`, whose mutex is held.
orError_t keep(orStream& stream, Work&& work);

// What a stream has come to, for an event; in a capture, not yet a moment.
std::shared_ptr<Moment> mark_captured(orStream& stream);

// A stream that waits for an event of a capture takes part in it.
orError_t join_capture(
    const std::shared_ptr<orStream>& stream, const Branch& from);

// Breaks the capture of a stream, if it is in one, because `what` needs its
// work done. NULL does not.
orError_t check_not_captured(orStream& stream, const char* what);

// Refuses a call that waits for all streams of a device while one is captured.
orError_t check_not_captured(Device* device, const char* call);

// Refuses what the host asks an event of a capture: it has no moment.
orError_t check_not_captured(
    const std::shared_ptr<Moment>& moment,
    const std::shared_ptr<Moment>& other = nullptr);

}  // namespace emulator

struct orGraph {
  std::shared_ptr<emulator::Capture> capture;
};
