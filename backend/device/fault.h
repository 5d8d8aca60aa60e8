#pragma once

// What to say when the host touches device memory.

namespace emulator {

void install_fault_handler();

}  // namespace emulator
