#pragma once

#include <c10/core/Storage.h>

#include "csrc/runtime/device.h"

// Storages that several processes use at once.

namespace openreg {

// Where another process finds the bytes of a storage.
// The pool cuts blocks from segments, and a segment is what the device knows.
struct SharedStorage {
  orIpcMemHandle segment;
  size_t start;  // of the storage in the segment
  size_t bytes;
};

// Describes a storage of a device, not an empty one, to another process. It
// cannot be resized from then on. Raises for a storage that came from another
// process. The caller has waited for the work that writes it.
OPENREG_EXPORT SharedStorage share_storage(const c10::Storage& storage);

// The same bytes as a storage of `device` in this process. `lease` is a
// descriptor that becomes the storage's and is closed at its end. When this
// raises, `lease` is still the caller's.
OPENREG_EXPORT c10::Storage open_storage(
    c10::DeviceIndex device, const SharedStorage& shared, int lease);

}  // namespace openreg
