#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "csrc/distributed/flight.h"

namespace openreg {

// [backend-class] The collectives of the device, as c10d asks for them.
// The transport moves the bytes: here Gloo's process group, a vendor's own
// library elsewhere. It knows memory of the host alone, and gets aliases. What
// ranks tell each other before, the handshake, has connections of its own:
// among the bytes it would wait for them, and they for it.
class OPENREG_EXPORT Collectives final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  Collectives(
      c10::intrusive_ptr<c10d::Backend> transport,
      c10::intrusive_ptr<c10d::Backend> words);
  ~Collectives() override;

  const std::string getBackendName() const override;
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void enableCollectivesTiming() override;
  void abort() override;
  bool supportsSplitting() const override;
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& options) override;

  bool supportsCoalescing() const override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  // [/backend-class]

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_coalesced(
      Tensors&, const c10d::AllreduceCoalescedOptions&) override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr allgather(
      std::vector<Tensors>& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions&) override;
  WorkPtr _allgather_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::AllgatherOptions&) override;
  WorkPtr allgather_coalesced(
      std::vector<Tensors>& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions&) override;
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions&) override;
  WorkPtr gather(
      std::vector<Tensors>& outputs,
      Tensors& inputs,
      const c10d::GatherOptions&) override;
  WorkPtr scatter(
      Tensors& outputs,
      std::vector<Tensors>& inputs,
      const c10d::ScatterOptions&) override;
  WorkPtr reduce_scatter(
      Tensors& outputs,
      std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions&) override;
  WorkPtr _reduce_scatter_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::ReduceScatterOptions&) override;
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(
      Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override;
  WorkPtr send(Tensors&, int rank, int tag) override;
  WorkPtr recv(Tensors&, int rank, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;

 private:
  // Tags of the transport's that no message of a user's has.
  static constexpr int message_tag = 1 << 29;
  static constexpr int handshake_tag = 1 << 30;
  using Operations = std::vector<Operation>;

  WorkPtr start(bool waits, const std::function<Operations()>& prepare);
  WorkPtr add(bool waits, Operations operations);
  WorkPtr receive(const char* name, Tensors& tensors, int rank, int tag);
  std::shared_ptr<Flight> make_flight();
  WorkPtr work_of(const Operation& operation, std::shared_ptr<Flight> flight);
  c10::DeviceIndex device_of(const Operations& operations) const;
  void choose(c10::DeviceIndex device);
  void mend_default() const;
  std::shared_ptr<Handshake> shake_hands(
      const std::optional<Handshake::Side>& told,
      const std::optional<Handshake::Side>& expected,
      int tag);
  std::shared_ptr<Handshake> agree_with_neighbours(const Operation& operation);
  int offer(int other, int bytes);
  bool is_idle(const at::Tensor& tensor) const;
  Operation exchange(
      Operation call, int other, const at::Tensor& to, const at::Tensor& from);
  Operations exchange_all(Operation, const Tensors& to, const Tensors& from);
  Operations reduce_shares(Operation, Tensors shares, c10d::ReduceOp op);

  Operations gather_into(const at::Tensor& output, const at::Tensor& input);
  Operations gather_all(const Tensors&, const at::Tensor&, c10d::OpType);
  Operations reduce_to_all(Operation call, c10d::AllreduceOptions options);
  Operations reduce_to_parts(
      const at::Tensor& output,
      const at::Tensor& input,
      const c10d::ReduceOp& op);

  const c10::intrusive_ptr<c10d::Backend> transport_;
  const c10::intrusive_ptr<c10d::Backend> words_;
  std::recursive_mutex mutex_;  // guards all below, and the order of launches
  std::shared_ptr<Flight> coalescing_;
  std::exception_ptr refused_;  // of what is coalescing
  std::mutex words_mutex_;      // guards handshakes, also while a call waits
  std::vector<std::shared_ptr<Handshake>> handshakes_;
  struct Peer {
    Handshake::Packet asked;  // the next
    int calls = 0;            // of this rank and that one, of sixteen
    std::shared_ptr<std::atomic<int>> lost =
        std::make_shared<std::atomic<int>>(0);
  };
  std::unordered_map<int, Peer> peers_;  // by rank
  bool over_ = false;
  c10::EventFlag times_ = c10::EventFlag::PYTORCH_DEFAULT;
  std::optional<Lane> lane_;
  uint64_t number_ = 0;
  int messages_ = 0;
};

}  // namespace openreg
