#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/aten/forms/alias.h"
#include "csrc/distributed/backend.h"
#include "csrc/distributed/checks.h"

// What goes from one rank to another.

namespace openreg {

using c10d::OpType;
using WorkPtr = Collectives::WorkPtr;

// [messages-bytes] Data of any dtype that is only moved is sent as bytes.
at::Tensor bytes_of(const at::Tensor& tensor) {
  auto alias = own(tensor);
  auto bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(alias.storage()),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      caffe2::TypeMeta::Make<uint8_t>());
  auto* const impl = bytes.unsafeGetTensorImpl();
  const int64_t size = static_cast<int64_t>(tensor.nbytes());
  const int64_t stride = 1;
  const int64_t offset = tensor.storage_offset() * tensor.element_size();
  impl->set_sizes_and_strides(
      at::IntArrayRef(size), at::IntArrayRef(stride), offset);
  return bytes;
}
// [/messages-bytes]

static Handshake::Terms terms_of(const at::Tensor& tensor, int64_t number) {
  return {OpType::SEND, tensor.scalar_type(), tensor.numel(), number};
}

// Tags from `tags` on are the group's own.
static void check_other(
    const char* invalid, int rank, int own, int tag, int tags) {
  TORCH_CHECK_VALUE(
      tag < tags, "openreg: a tag is below ", tags, ", but got ", tag, ".");
  // PyTorch says so itself where a call waits.
  TORCH_CHECK_VALUE(
      rank != own,
      invalid,
      " rank should not be the same as the rank of the current process.");
}

// Its number would be the same in each replay.
static void check_no_capture(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(
      capture_of(current_stream(tensor.device().index())) == nullptr,
      "openreg: ",
      name,
      " cannot be captured, since a message is told of before it is sent; send "
      "it before or after a replay.");
}

// [messages-send] The receiver is told of a message before it is sent.
// It has a number, by which its bytes are asked for, so messages of one tag may
// be on their way at once and keep their order.
WorkPtr Collectives::send(Tensors& tensors, int rank, int tag) {
  return start(false, [&] {
    const char* const name = "c10d::send";
    check_other(
        "Invalid destination rank: destination", rank, rank_, tag, message_tag);
    check_tensors(name, {only(name, tensors)}, {});
    check_no_capture(name, tensors[0]);
    const int number = ++messages_ % message_tag;
    const auto handshake =
        shake_hands({{rank, terms_of(tensors[0], number)}}, {}, tag);
    const auto post = [x = Tensors{bytes_of(tensors[0])}, rank, number](
                          auto& transport) mutable {
      return transport.send(x, rank, message_tag + number);
    };
    return Operations{
        {name, OpType::SEND, tensors, {}, post, 0, nullptr, handshake}};
  });
}
// [/messages-send]

// [messages-receive] The data is received once its size and dtype are known.
WorkPtr Collectives::receive(
    const char* name, Tensors& tensors, int rank, int tag) {
  return start(false, [&] {
    check_other("Invalid source rank: source", rank, rank_, tag, message_tag);
    check_tensors(name, {}, {only(name, tensors)});
    check_no_capture(name, tensors[0]);
    const auto type = rank < 0 ? OpType::RECVANYSOURCE : OpType::RECV;
    const Handshake::Side ours{rank, terms_of(tensors[0], 0)};
    const auto handshake = shake_hands({}, ours, tag);
    const auto post = [x = Tensors{bytes_of(tensors[0])}, handshake, ours](
                          auto& transport) mutable {
      const auto message = handshake->await_message();
      const int from = message_tag + static_cast<int>(message.terms.detail);
      const auto bytes =
          message.terms.elements *
          static_cast<int64_t>(c10::elementSize(message.terms.dtype));
      if (bytes != x[0].numel()) {  // its sender shall not wait for ever
        Tensors dropped{at::empty({bytes}, at::kByte)};
        transport.recv(dropped, message.rank, from)->wait();
      }
      auto expected = ours;
      expected.terms.detail = message.terms.detail;
      handshake->check(expected, message);
      return transport.recv(x, message.rank, from);
    };
    return Operations{{name, type, {}, tensors, post, 0, nullptr, handshake}};
  });
}
// [/messages-receive]

WorkPtr Collectives::recv(Tensors& tensors, int rank, int tag) {
  return receive("c10d::recv_", tensors, rank, tag);
}

WorkPtr Collectives::recvAnysource(Tensors& tensors, int tag) {
  return receive("c10d::recv_any_source_", tensors, -1, tag);
}

// [messages-refuse] Gloo does not check that a tensor is on the host.
// It would read at a device address on a thread of its own. So a kernel above
// all backends checks which one the group has for the device.
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

template <typename... Args>
static WorkPtr pass_on(
    const char* name,
    at::TensorList tensors,
    const Group& group,
    Args... args) {
  TORCH_CHECK(
      group->getBackend(c10::kPrivateUse1)->getBackendName() != "gloo",
      "openreg: Gloo by itself sends and receives memory of the host alone. "
      "Name the device's backend, as in "
      "init_process_group(\"openreg:orccl\").");
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset);
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<WorkPtr(at::TensorList, const Group&, Args...)>()
      .call(tensors, group, args...);
}

TORCH_LIBRARY_IMPL(c10d, AutogradPrivateUse1, m) {
  m.impl("send", [](at::TensorList t, const Group& g, int64_t to, int64_t tag) {
    return pass_on("c10d::send", t, g, to, tag);
  });
  m.impl(
      "recv_", [](at::TensorList t, const Group& g, int64_t from, int64_t tag) {
        return pass_on("c10d::recv_", t, g, from, tag);
      });
  m.impl("recv_any_source_", [](at::TensorList t, const Group& g, int64_t tag) {
    return pass_on("c10d::recv_any_source_", t, g, tag);
  });
}
// [/messages-refuse]

}  // namespace openreg
