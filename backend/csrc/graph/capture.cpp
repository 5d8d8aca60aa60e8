#include "csrc/graph/capture.h"

#include "csrc/aten/core/copy_elements.h"
#include "csrc/runtime/address.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/generator.h"
#include "csrc/runtime/stream.h"
#include "csrc/runtime/wait.h"

namespace openreg {

namespace {

// Captures by the device's number, which all streams of one know.
struct Table {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Capture>> captures;
};

Table& table() {
  static auto* const table = new Table;
  return *table;
}

}  // namespace

std::shared_ptr<Capture> find_capture(orStream_t stream) {
  const uint64_t number = orStreamGetCapture(stream);
  const std::lock_guard lock(table().mutex);
  const auto found = table().captures.find(number);
  return found == table().captures.end() ? nullptr : found->second;
}

// [capture-begin] Begins a capture on the device, and keeps track of it.
void begin_capture(orStream_t stream, std::shared_ptr<Capture> capture) {
  OPENREG_CHECK(orStreamBeginCapture(stream));
  const std::lock_guard lock(table().mutex);
  table().captures[orStreamGetCapture(stream)] = std::move(capture);
  ++Pool::captures;
}

orGraph_t end_capture(orStream_t stream) {
  {
    const std::lock_guard lock(table().mutex);
    Pool::captures -=
        static_cast<int>(table().captures.erase(orStreamGetCapture(stream)));
  }
  orGraph_t graph = nullptr;
  OPENREG_CHECK(orStreamEndCapture(stream, &graph));
  return graph;
}
// [/capture-begin]

void note_draw(Capture* capture, const at::Generator& generator) {
  if (capture != nullptr) {
    const std::lock_guard lock(capture->mutex);
    capture->generators.push_back(generator);
  }
}

// [capture-use] Notes which tensors from outside a captured graph uses.
// A graph has only addresses, which keep no tensor alive, so each storage is
// looked up again before a launch. Nobody else gets memory of the graph's pool.
static void note_in_capture(
    c10::DeviceIndex device, const c10::Storage& storage) {
  const auto capture = capture_of(current_stream(device));
  const void* const address = storage.data();
  if (capture == nullptr || address == nullptr ||
      (is_device_address(address) &&
       private_pool_of(address) == capture->pool)) {
    return;
  }
  const std::lock_guard lock(capture->mutex);
  auto* const impl = storage.unsafeGetStorageImpl();
  capture->uses.try_emplace(
      impl,
      Capture::Use{
          c10::weak_intrusive_ptr<c10::StorageImpl>(
              c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl)),
          address});
}

void check_uses(Capture& capture) {
  const std::lock_guard lock(capture.mutex);
  for (const auto& [impl, use] : capture.uses) {
    const auto storage = use.storage.lock();
    TORCH_CHECK(
        storage && storage->data() == use.address,
        "openreg: a tensor that this graph uses was freed since the capture, "
        "or has other memory now. Keep what a graph reads and writes, and "
        "assign in place, as x.copy_(y) does; or capture it again.");
  }
}
// [/capture-use]

// [capture-state] A capture refuses access to a generator's state.
static void refuse_state_access(c10::DeviceIndex device) {
  TORCH_CHECK(
      capture_of(current_stream(device)) == nullptr,
      "openreg: the seed and the state of a generator of device ",
      static_cast<int>(device),
      " are the host's, so a replay would neither set nor read them; do it "
      "before the capture or before a replay.");
}

// [/capture-state]

// The copy that parts a lazy clone is due once.
static void refuse_parting(c10::DeviceIndex device) {
  TORCH_CHECK(
      capture_of(current_stream(device)) == nullptr,
      "openreg: the first write to a lazy clone makes a copy, which a replay "
      "would make again; write to it before the capture, or clone() it.");
}

[[maybe_unused]] static const bool listens = [] {
  note_use = &note_in_capture;
  before_state_access = &refuse_state_access;
  before_parting = &refuse_parting;
  return true;
}();

}  // namespace openreg
