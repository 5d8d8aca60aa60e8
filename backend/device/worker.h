#pragma once

#include "device/stream.h"

// The thread that runs a stream's queued work.

namespace emulator {

// Starts the worker of a stream whose mutex is held. May throw.
void start_worker(const StreamRef& stream);
// Whether the process is ending: nothing is queued any more.
bool is_ending();

}  // namespace emulator
