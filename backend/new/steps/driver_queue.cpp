#include <vector>

#include "csrc/driver.h"

// The queues of the first driver, whose calls return when their work is done.
// Replace this file, too.

struct drvQueue {};

drvError_t drvDeviceGetDefaultStream(drvStream_t* stream, int device) {
  // Leaked on purpose: work may come after static destructors have run.
  static auto* const queues = [] {
    int count = 0;
    drvGetDeviceCount(&count);
    return new std::vector<drvQueue>(count);
  }();
  if (device < 0 || static_cast<size_t>(device) >= queues->size()) {
    return drvErrorInvalidDevice;
  }
  *stream = &(*queues)[device];
  return drvSuccess;
}
