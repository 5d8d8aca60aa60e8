#include "csrc/runtime/storage.h"

#include <unistd.h>

#include <memory>

#include <c10/core/DeviceGuard.h>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

namespace openreg {
namespace {

// What an opened storage holds.
struct Opened {
  void* segment;
  int lease;
};

// [storage-close] Closing waits for work that may read the segment.
void close_storage(void* context) noexcept {
  const std::unique_ptr<Opened> opened(static_cast<Opened*>(context));
  without_interpreter_lock([&] { orIpcCloseMemHandle(opened->segment); });
  close(opened->lease);
}
// [/storage-close]

}  // namespace

// [storage-share] To share a storage is to share its whole segment.
SharedStorage share_storage(const c10::Storage& storage) {
  auto* const impl = storage.unsafeGetStorageImpl();
  // "cuda" is the flag's name for every device.
  TORCH_CHECK(
      !impl->received_cuda(),
      "Attempted to send openreg tensor received from another process; this "
      "is not currently supported. Consider cloning before sending.");
  // Others may write it, so it parts from its lazy clones.
  orPointerAttributes segment{};
  OPENREG_CHECK(orPointerGetAttributes(&segment, storage.mutable_data()));
  OPENREG_CHECK_WAIT(
      orStreamSynchronize(current_stream(storage.device().index())));
  SharedStorage shared{};
  OPENREG_CHECK(orIpcGetMemHandle(&shared.segment, segment.base));
  shared.start = static_cast<const char*>(storage.data()) -
                 static_cast<const char*>(segment.base);
  shared.bytes = storage.nbytes();
  // Other processes would not see it move.
  impl->set_resizable(false);
  return shared;
}
// [/storage-share]

// [storage-open] In the other process this is a storage like any other.
c10::Storage open_storage(
    c10::DeviceIndex device, const SharedStorage& shared, int lease) {
  TORCH_CHECK(
      shared.start <= shared.segment.size &&
          shared.bytes <= shared.segment.size - shared.start,
      "A storage of ",
      shared.bytes,
      " bytes at ",
      shared.start,
      " is not within a segment of ",
      shared.segment.size,
      " bytes.");
  const c10::Device place(c10::kPrivateUse1, device);
  const c10::DeviceGuard guard(place);
  auto opened = std::make_unique<Opened>(Opened{nullptr, lease});
  OPENREG_CHECK(orIpcOpenMemHandle(&opened->segment, &shared.segment));
  void* const data = static_cast<char*>(opened->segment) + shared.start;
  c10::Storage storage(
      c10::Storage::use_byte_size_t(),
      shared.bytes,
      c10::DataPtr(data, opened.release(), &close_storage, place),
      device_allocator(),
      /*resizable=*/false);
  storage.unsafeGetStorageImpl()->set_received_cuda(true);
  return storage;
}
// [/storage-open]

}  // namespace openreg
