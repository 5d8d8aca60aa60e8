#include "csrc/graph/captured.h"

#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/empty_strided.h>

#include "csrc/aten/core/arguments.h"
#include "csrc/aten/forms/alias.h"
#include "csrc/aten/kinds/parts.h"

namespace openreg {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

Tensor empty_like_on(const Tensor& tensor, c10::Device device) {
  if (!tensor.defined()) {
    return tensor;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !has_parts(tensor),
      "openreg: a tensor of layout ",
      tensor.layout(),
      " and dtype ",
      tensor.scalar_type(),
      " cannot be captured; expected a plain one.");
  return at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(device));
}

Tensor on_meta(const Tensor& tensor) {
  const bool on_host = tensor.defined() && tensor.is_cpu();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !on_host || tensor.dim() == 0,
      "openreg: a tensor of the host's, here of ",
      tensor.numel(),
      " elements, cannot be captured: it may have changed, or be gone, at a "
      "replay. Copy it to the device before the capture.");
  return on_host ? tensor : empty_like_on(tensor, c10::kMeta);
}

void refuse_capture(std::string_view name, const std::exception& error) {
  const std::string_view said = error.what();
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "openreg: ",
      name,
      " cannot be captured, since only a run would show what it returns. Call "
      "it before or after the capture. PyTorch says: ",
      said.substr(0, said.find('\n')));
}

void copy_result(const Tensor& to, const Tensor& result) {
  if (!to.defined()) {
    return;
  }
  TORCH_INTERNAL_ASSERT(to.sizes() == result.sizes());  // as Meta has told
  to.copy_(result);
}

namespace {

// [captured-shape] A call on Meta tensors finds the shapes of the results.
// PyTorch has a kernel for this under the key Meta, whose tensors have no data.
Stack call_on_meta(const c10::OperatorHandle& op, c10::ArrayRef<IValue> args) {
  if (op.schema().returns().empty()) {
    return {};
  }
  Stack stack;
  std::vector<std::pair<Tensor, Tensor>> outputs;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].isDevice()) {
      stack.emplace_back(c10::Device(c10::kMeta));
    } else if (is_generator(op.schema().arguments()[i])) {
      stack.emplace_back();
    } else {
      stack.push_back(change_tensors(args[i], [&](const Tensor& tensor) {
        auto meta = on_meta(tensor);
        if (op.schema().arguments()[i].is_out()) {
          outputs.emplace_back(tensor, meta);
        }
        return meta;
      }));
    }
  }
  try {
    const KernelScope below_autograd(host_memory);
    op.callBoxed(&stack);
  } catch (const std::exception& error) {
    refuse_capture(op.schema().name(), error);
  }
  for (const auto& [output, meta] : outputs) {
    output.resize_(meta.sizes());
  }
  return stack;
}
// [/captured-shape]

// [captured-exceptions] Operators whose shapes differ on Meta, in torch 2.13.
void correct(
    const c10::OperatorHandle& op, c10::ArrayRef<IValue> args, Stack* shapes) {
  const std::string_view name = op.schema().name();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !name.starts_with("aten::_embedding_bag"),
      "openreg: ",
      name,
      " cannot be captured: PyTorch tells other shapes of its results than the "
      "kernel has. Call it before or after the capture.");
  if (name.find("native_batch_norm") != name.npos) {
    const auto training = op.schema().argumentIndexWithName("training");
    if (training.has_value() && !args[*training].toBool()) {
      const auto& saved = (*shapes)[1].toTensor();
      (*shapes)[1] = (*shapes)[2] = saved.new_empty({0});
    }
  }
}
// [/captured-exceptions]

// The arguments as the graph owns them. One tensor gets one alias, because
// kernels know `x.op_(y)` by the identity of their arguments.
class OwnedArguments {
 public:
  Tensor own(const Tensor& tensor, bool written) {
    for (const auto& [device, alias] : known_) {
      if (device.is_same(tensor)) {
        return alias;
      }
    }
    if (tensor.defined() && tensor.is_privateuseone() && written) {
      tensor.storage().mutable_data();  // parts it from its lazy clones
    }
    known_.emplace_back(tensor, openreg::own(tensor));
    return known_.back().second;
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> known_;
};

// What a node of the graph calls, and where its results go.
struct CapturedCall {
  c10::OperatorHandle op;
  CallOnHost kernel;
  std::vector<IValue> arguments;
  std::vector<Tensor> results;  // aliases of those that the call made

  // [captured-run] Each replay computes new results and copies them in place.
  void operator()() const {
    const KernelScope scope(host_memory);
    Stack stack = arguments;
    kernel(op, &stack);
    auto next = results.begin();
    for (const IValue& value : stack) {
      for_each_tensor(value, [&](const Tensor& result) {
        copy_result(*next, result);
        ++next;
      });
    }
  }
  // [/captured-run]
};

// The argument that a return is, as `self` of `add_`; nullptr if it is new.
const IValue* returned_argument(
    const c10::FunctionSchema& schema,
    const c10::Argument& returned,
    c10::ArrayRef<IValue> args) {
  if (returned.alias_info() == nullptr) {
    return nullptr;
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const auto* const info = schema.arguments()[i].alias_info();
    if (info != nullptr && *info == *returned.alias_info()) {
      return &args[i];
    }
  }
  return nullptr;
}

// Results where they will be, and the aliases of those that the call makes.
std::vector<Tensor> push_results(
    const c10::FunctionSchema& schema,
    c10::ArrayRef<IValue> args,
    const Stack& shapes,
    c10::Device device,
    Stack* stack) {
  std::vector<Tensor> made;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto* const argument =
        returned_argument(schema, schema.returns()[i], args);
    const auto make = [&](const Tensor& tensor) {
      const bool is_new = argument == nullptr;
      const auto result = is_new ? empty_like_on(tensor, device) : tensor;
      made.push_back(is_new ? own(result) : Tensor());
      return result;
    };
    stack->push_back(
        change_tensors(argument == nullptr ? shapes[i] : *argument, make));
  }
  return made;
}

}  // namespace

// [captured-call] Allocates the results and records the call in the graph.
void capture_call(
    Capture& capture,
    const Call& call,
    const c10::OperatorHandle& op,
    Stack* stack,
    CallOnHost kernel) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<IValue> args(stack->end() - count, stack->end());
  Stack shapes = call_on_meta(op, args);
  correct(op, args, &shapes);
  torch::jit::drop(*stack, count);
  const c10::Device here(c10::kPrivateUse1, capture.device);
  CapturedCall kept{
      op, kernel, {}, push_results(schema, args, shapes, here, stack)};
  OwnedArguments owned;
  for (size_t i = 0; i < count; ++i) {
    if (args[i].isGenerator()) {
      note_draw(&capture, args[i].toGenerator());
    }
    const bool written = writes(schema, schema.arguments()[i]);
    kept.arguments.push_back(change_tensors(args[i], [&](const Tensor& tensor) {
      return owned.own(tensor, written);
    }));
  }
  launch(call, Runs::kQueued, std::move(kept));
}
// [/captured-call]

}  // namespace openreg
