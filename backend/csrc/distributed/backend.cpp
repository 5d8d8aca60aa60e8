#include "csrc/distributed/backend.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace openreg {
namespace {

using c10::intrusive_ptr;
using c10d::OpType;
using WorkPtr = Collectives::WorkPtr;

// Raises again what is handled, an error of the transport's as one of c10d's.
[[noreturn]] void raise_as_ours(const std::string& who) {
  try {
    throw;
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(
        DistBackendError,
        false,
        "openreg: ",
        who,
        " cannot reach another: ",
        error.what());
  }
}

// What the Work of a coalescing says that it is.
Operation coalesced() {
  return {"c10d::coalesced", OpType::COALESCED, {}, {}};
}

}  // namespace

Collectives::Collectives(
    intrusive_ptr<c10d::Backend> transport, intrusive_ptr<c10d::Backend> words)
    : Backend(transport->getRank(), transport->getSize()),
      transport_(std::move(transport)),
      words_(std::move(words)) {}

Collectives::~Collectives() = default;

const std::string Collectives::getBackendName() const {
  return "orccl";
}

// [backend-split] Splitting a group splits its transport.
// Groups of several devices split every backend with the options of this one,
// so these are the transport's own; and with one store.
intrusive_ptr<c10d::Backend::Options> Collectives::getBackendOptions() {
  return transport_->getBackendOptions();
}

bool Collectives::supportsSplitting() const {
  return transport_->supportsSplitting();
}

intrusive_ptr<c10d::Backend> Collectives::split(
    const intrusive_ptr<c10d::Store>& store,
    const std::vector<int>& ranks,
    const intrusive_ptr<Options>& options) {
  const auto part_of = [&](const auto& whole, const char* name) {
    const auto ours = c10::make_intrusive<c10d::PrefixStore>(name, store);
    return whole->split(ours, ranks, options);
  };
  auto part = part_of(transport_, "orccl/bytes");
  auto words = part_of(words_, "orccl/words");
  return part ? c10::make_intrusive<Collectives>(part, words) : nullptr;
}
// [/backend-split]

void Collectives::setTimeout(std::chrono::milliseconds timeout) {
  transport_->setTimeout(timeout);
  words_->setTimeout(timeout);
}

void Collectives::enableCollectivesTiming() {
  times_ = c10::EventFlag::BACKEND_DEFAULT;
}

// [backend-abort] Ends every wait for a rank that may never answer.
// A message that comes later would be taken for an answer to the next call, so
// no call may follow. Gloo cannot stop a transfer that has begun: it ends, or
// fails when its peer does, or after the timeout.
void Collectives::abort() {
  const std::lock_guard lock(words_mutex_);
  over_ = true;
  for (const auto& handshake : handshakes_) {
    handshake->abort();
  }
}
// [/backend-abort]

uint64_t Collectives::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return number_;
}

// [backend-coalesce] Calls between these are collected; errors come at the end.
// PyTorch keeps a list of its own meanwhile. An error would leave that list
// behind, and each later call would join it and do nothing.
bool Collectives::supportsCoalescing() const {
  return true;
}

void Collectives::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_ = make_flight();
  refused_ = nullptr;
}

WorkPtr Collectives::endCoalescing() {
  const std::lock_guard lock(mutex_);
  const auto flight = std::exchange(coalescing_, nullptr);
  if (const auto refused = std::exchange(refused_, nullptr)) {
    std::rethrow_exception(refused);
  }
  if (flight == nullptr || (flight->operations.empty() && !flight->stream)) {
    return nullptr;
  }
  flight->depart();
  return work_of(coalesced(), flight);
}
// [/backend-coalesce]

// [backend-start] Turns the call of a collective into a Work object.
WorkPtr Collectives::start(
    bool waits, const std::function<Operations()>& prepare) {
  const std::lock_guard lock(mutex_);
  try {
    return add(waits, prepare());
  } catch (...) {
    if (coalescing_ == nullptr) {
      raise_as_ours(c10::str("rank ", rank_, " of ", size_));
    }
    refused_ = std::current_exception();
    return work_of(coalesced(), coalescing_);
  }
}

WorkPtr Collectives::add(bool waits, Operations operations) {
  choose(device_of(operations));
  const bool collects = coalescing_ != nullptr;
  if (collects && coalescing_->stream) {  // somebody waited meanwhile
    coalescing_ = make_flight();
  }
  const auto flight = collects ? coalescing_ : make_flight();
  flight->waits = waits && !collects;
  Operation all = operations.front();
  all.results.clear();
  for (auto& operation : operations) {
    if (size_ > 1 && operation.post && !operation.handshake) {
      operation.handshake = agree_with_neighbours(operation);
    }
    all.results.insert(
        all.results.end(), operation.results.begin(), operation.results.end());
    flight->operations.push_back(std::move(operation));
  }
  if (!collects) {
    flight->depart();
  }
  return work_of(all, flight);
}
// [/backend-start]

WorkPtr Collectives::work_of(
    const Operation& operation, std::shared_ptr<Flight> flight) {
  ++number_;
  return c10::make_intrusive<CollectiveWork>(
      rank_, operation, std::move(flight));
}

std::shared_ptr<Flight> Collectives::make_flight() {
  // Whoever holds the Work of an unlaunched flight may outlive this group.
  const auto self =
      intrusive_ptr<Collectives>::unsafe_reclaim_from_nonowning(this);
  const auto launch = [self](Flight& flight) {
    const std::lock_guard lock(self->mutex_);
    if (!flight.operations.empty()) {
      launch_flight(flight, *self->lane_, self->transport_);
    }
  };
  return std::make_shared<Flight>(launch, times_);
}

c10::DeviceIndex Collectives::device_of(const Operations& operations) const {
  const auto& tensors = operations.front().tensors();
  if (!tensors.empty()) {
    return tensors.front().device().index();
  }
  if (lane_) {
    return lane_->stream().device_index();
  }
  return bound_device_id_ ? bound_device_id_->index() : current_device();
}

// [backend-default] Without a backend's name, PyTorch's default is Gloo.
// PyTorch then looks for Gloo where it has no tensor to ask, as in DDP, but
// this group has none.
void Collectives::mend_default() const {
  try {
    const auto group = c10d::resolve_process_group(getGroupUid());
    try {
      group->getBackend(group->getBackendType());
    } catch (const c10::Error&) {
      group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    }
  } catch (const c10::Error&) {
    // It is used without a group.
  }
}
// [/backend-default]

// [backend-lane] A group uses one device, so its collectives have one order.
void Collectives::choose(c10::DeviceIndex device) {
  if (!lane_) {
    lane_.emplace(device);
    mend_default();
  }
  TORCH_CHECK(
      lane_->stream().device_index() == device,
      "openreg: this group has run collectives on ",
      lane_->stream().device(),
      ", and these tensors are on openreg:",
      static_cast<int>(device),
      ". A process uses one device in a group: call torch.openreg.set_device() "
      "with its own before, or make another group.");
}
// [/backend-lane]

// [backend-shake] A handshake keeps its memory until it has arrived.
// A kernel may be dropped before it reads the message, and if the memory went
// with the kernel, the transport would block all that come later.
std::shared_ptr<Handshake> Collectives::shake_hands(
    const std::optional<Handshake::Side>& told,
    const std::optional<Handshake::Side>& expected,
    int tag) {
  const std::lock_guard lock(words_mutex_);
  TORCH_CHECK(!over_, "openreg: this group was aborted.");
  std::erase_if(handshakes_, [](const auto& each) { return each->is_over(); });
  // A profile of this thread's would have them, and may be gone when they end.
  const at::DisableRecordFunctionGuard unseen;
  Handshake::Packet mine, asked;
  const bool both = told && expected && told->rank == expected->rank;
  Peer& peer = peers_[(expected ? expected : told)->rank];
  peer.calls = (peer.calls + both) % 16;
  if (expected) {
    const int from = expected->rank;
    asked = told ? std::exchange(peer.asked, {}) : Handshake::Packet();
    if (!asked.work) {
      asked = Handshake::ask(*words_, from, tag);
    }
    // What is asked for before it is told comes at once. A rank to which this
    // one tells something in return is still there to be asked. Two ranks alone
    // were measured: for them it takes longer.
    if (size_ > 2 && both) {
      peer.asked = Handshake::ask(*words_, from, tag);
    }
  }
  if (told) {
    mine = Handshake::tell(*words_, *told, tag);
  }
  return handshakes_.emplace_back(
      std::make_shared<Handshake>(rank_, mine, asked, expected, peer.lost));
}
// [/backend-shake]

// [backend-agree] Each rank compares its call with those of its neighbours.
// If any two differ, then some neighbours do.
std::shared_ptr<Handshake> Collectives::agree_with_neighbours(
    const Operation& operation) {
  Handshake::Terms terms{
      operation.type, c10::ScalarType::Undefined, 0, operation.detail};
  if (!operation.tensors().empty()) {
    const auto& tensor = operation.tensors().front();
    terms.dtype = tensor.scalar_type();
    terms.elements = terms.returns = tensor.numel();
  }
  const int next = (rank_ + 1) % size_, last = (rank_ + size_ - 1) % size_;
  return shake_hands({{next, terms}}, {{last, terms}}, handshake_tag);
}
// [/backend-agree]

}  // namespace openreg
