// All files of this folder, since a compiler takes longer for c10d's headers
// than for them.

#include "csrc/distributed/backend.cpp"
#include "csrc/distributed/checks.cpp"
#include "csrc/distributed/collectives.cpp"
#include "csrc/distributed/flight.cpp"
#include "csrc/distributed/lane.cpp"
#include "csrc/distributed/messages.cpp"
