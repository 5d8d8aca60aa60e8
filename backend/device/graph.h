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

// What a stream has come to, for an event. NULL outside a capture.
std::shared_ptr<Branch> branch_of(orStream& stream);

// A wait for an event where the stream is captured, or the event was.
orError_t wait_in_capture(
    const std::shared_ptr<orStream>& stream, const Moment& moment);

// Breaks the capture of a stream, because `what` needs its work done.
orError_t refuse_in_capture(orStream& stream, const char* what);

// Refuses a call that waits for all streams of a device while one is captured.
orError_t check_not_captured(Device* device, const char* call);

// Refuses what the host asks an event of a capture: it has no moment.
orError_t check_not_captured(const std::shared_ptr<Moment>& moment);

}  // namespace emulator

struct orGraph {
  std::shared_ptr<emulator::Capture> capture;
};
