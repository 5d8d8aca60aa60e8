#include <algorithm>
#include <cstring>

#include "csrc/aten/forms/alias.h"
#include "csrc/distributed/backend.h"
#include "csrc/distributed/checks.h"

// Each collective: what is refused, what the transport gets in the place of the
// tensors, and what is left to do when it is done.

namespace openreg {

static Tensors bytes_of(const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) {
    all.push_back(bytes_of(tensor));
  }
  return all;
}

namespace {

using c10d::OpType;
using c10d::ReduceOp;
using WorkPtr = Collectives::WorkPtr;

Tensors aliases_of(const Tensors& tensors) {
  Tensors aliases;
  for (const auto& tensor : tensors) {
    aliases.push_back(own(tensor));
  }
  return aliases;
}

// [collectives-average] A mean is a sum, divided in the same kernel.
template <typename Options>
std::function<void()> divide_after_sum(
    Options& options, const Tensors& aliases, int size) {
  if (options.reduceOp != ReduceOp::AVG) {
    return nullptr;
  }
  options.reduceOp = ReduceOp::SUM;
  return [aliases, size] {
    for (const auto& alias : aliases) {
      if (c10::isIntegralType(alias.scalar_type(), /*includeBool=*/true)) {
        alias.div_(size, "trunc");
      } else {
        alias.div_(size);
      }
    }
  };
}
// [/collectives-average]

}  // namespace

WorkPtr Collectives::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  return start([&] {
    const char* const name = "c10d::broadcast";
    check_tensors(name, {}, {only(name, tensors)});
    const int64_t root = options.rootRank;
    const auto post = [x = bytes_of(tensors),
                       options](auto& transport) mutable {
      return transport.broadcast(x, options);
    };
    return Operations{
        {name, OpType::BROADCAST, {}, tensors, post, nullptr, root}};
  });
}

// [collectives-allreduce] As each of them: check, alias, and say what to post.
static Operation reduce_to_all(
    const char* name,
    OpType type,
    const at::Tensor& tensor,
    c10d::AllreduceOptions options,
    int size) {
  check_reduction(name, tensor, options.reduceOp);
  const int64_t detail = options.reduceOp;
  Tensors x{own(tensor)};
  const auto divide = divide_after_sum(options, x, size);
  const auto post = [x, options](auto& transport) mutable {
    return transport.allreduce(x, options);
  };
  return {name, type, {}, {tensor}, post, divide, detail};
}

WorkPtr Collectives::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  return start([&] {
    const char* const name = "c10d::allreduce";
    check_tensors(name, {}, {only(name, tensors)});
    return Operations{
        reduce_to_all(name, OpType::ALLREDUCE, tensors[0], options, size_)};
  });
}
// [/collectives-allreduce]

WorkPtr Collectives::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return start([&] {
    const char* const name = "c10d::allreduce_coalesced";
    check_tensors(name, {}, tensors);
    Operations operations;
    for (const auto& tensor : tensors) {
      operations.push_back(reduce_to_all(
          name, OpType::ALLREDUCE_COALESCED, tensor, options, size_));
    }
    return operations;
  });
}

WorkPtr Collectives::reduce(
    Tensors& tensors, const c10d::ReduceOptions& options) {
  return start([&] {
    const char* const name = "c10d::reduce";
    check_tensors(name, {}, {only(name, tensors)});
    check_reduction(name, tensors[0], options.reduceOp);
    auto x = aliases_of(tensors);
    auto asked = options;
    auto divide = divide_after_sum(asked, x, size_);
    if (options.rootRank != rank_) {
      divide = nullptr;
    }
    const auto post = [x, asked](auto& transport) mutable {
      return transport.reduce(x, asked);
    };
    const int64_t detail = options.rootRank << 8 | options.reduceOp;
    return Operations{
        {name, OpType::REDUCE, {}, tensors, post, divide, detail}};
  });
}

Operation Collectives::gather_into(
    const at::Tensor& output,
    const at::Tensor& input,
    const c10d::AllgatherOptions& options) const {
  const char* const name = "c10d::_allgather_base";
  check_tensors(name, {input}, {output});
  check_parts(name, output, input, size_);
  return {
      name,
      OpType::_ALLGATHER_BASE,
      {input},
      {output},
      [to = bytes_of(output), from = bytes_of(input), options](
          auto& transport) mutable {
        return transport._allgather_base(to, from, options);
      },
      nullptr};
}

Operation Collectives::gather_all(
    const Tensors& outputs,
    const at::Tensor& input,
    const c10d::AllgatherOptions& options) const {
  const char* const name = "c10d::allgather";
  check_alike(name, input, outputs, size_);
  check_tensors(name, {input}, outputs);
  return {
      name,
      OpType::ALLGATHER,
      {input},
      outputs,
      [to = std::vector<Tensors>{bytes_of(outputs)},
       from = Tensors{bytes_of(input)},
       options](auto& transport) mutable {
        return transport.allgather(to, from, options);
      },
      nullptr};
}

WorkPtr Collectives::allgather(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return start([&] {
    const auto& input = only("c10d::allgather", inputs);
    TORCH_CHECK(
        outputs.size() == 1,
        "openreg: c10d::allgather takes one list of outputs, not ",
        outputs.size(),
        ".");
    const char* const name = "c10d::allgather";
    const auto unlike = [&](const auto& output) {
      return output.sizes() != outputs[0][0].sizes();
    };
    if (std::ranges::any_of(outputs[0], unlike)) {
      check_tensors(name, inputs, outputs[0]);
      check_exchange(name, Tensors(size_, input), outputs[0], size_);
      return exchange_all(
          {name, OpType::ALLTOALL, inputs, outputs[0], nullptr, nullptr},
          bytes_of(outputs[0]),
          Tensors(size_, bytes_of(input)));
    }
    return Operations{gather_all(outputs[0], input, options)};
  });
}

WorkPtr Collectives::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  return start([&] { return Operations{gather_into(output, input, options)}; });
}

WorkPtr Collectives::allgather_coalesced(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return start([&] {
    check_some("c10d::coalesced", inputs);
    Operations operations;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensors of_input;
      for (const auto& of_rank : outputs) {
        of_input.push_back(of_rank.at(i));
      }
      operations.push_back(gather_all(of_input, inputs[i], options));
      operations.back().type = OpType::ALLGATHER_COALESCED;
    }
    return operations;
  });
}

WorkPtr Collectives::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return start([&] {
    check_some("c10d::coalesced", inputs);
    Operations operations;
    for (size_t i = 0; i < inputs.size(); ++i) {
      operations.push_back(gather_into(outputs.at(i), inputs[i], options));
    }
    return operations;
  });
}

WorkPtr Collectives::gather(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  return start([&] {
    const char* const name = "c10d::gather";
    const auto& input = only(name, inputs);
    const int64_t root = options.rootRank;
    const Tensors results =
        root == rank_ && !outputs.empty() ? outputs[0] : Tensors();
    check_alike(name, input, results, root == rank_ ? size_ : 0);
    check_tensors(name, inputs, results);
    std::vector to(root == rank_, bytes_of(results));
    const auto post =
        [to, from = bytes_of(inputs), options](auto& transport) mutable {
          return transport.gather(to, from, options);
        };
    return Operations{
        {name, OpType::GATHER, inputs, results, post, nullptr, root}};
  });
}

WorkPtr Collectives::scatter(
    Tensors& outputs,
    std::vector<Tensors>& inputs,
    const c10d::ScatterOptions& options) {
  return start([&] {
    const char* const name = "c10d::scatter";
    const auto& output = only(name, outputs);
    const int64_t root = options.rootRank;
    const Tensors parts =
        root == rank_ && !inputs.empty() ? inputs[0] : Tensors();
    check_alike(name, output, parts, root == rank_ ? size_ : 0);
    check_tensors(name, parts, outputs);
    std::vector from(root == rank_, bytes_of(parts));
    const auto post =
        [to = bytes_of(outputs), from, options](auto& transport) mutable {
          return transport.scatter(to, from, options);
        };
    return Operations{
        {name, OpType::SCATTER, parts, outputs, post, nullptr, root}};
  });
}

WorkPtr Collectives::reduce_scatter(
    Tensors& outputs,
    std::vector<Tensors>& inputs,
    const c10d::ReduceScatterOptions& options) {
  return start([&] {
    const char* const name = "c10d::reduce_scatter";
    const auto& output = only(name, outputs);
    const auto parts = inputs.empty() ? Tensors() : inputs[0];
    check_alike(name, output, parts, size_);
    check_tensors(name, parts, outputs);
    check_reduction(name, output, options.reduceOp);
    auto to = aliases_of(outputs);
    auto asked = options;
    const auto divide = divide_after_sum(asked, to, size_);
    const auto post = [to,
                       from = std::vector<Tensors>{aliases_of(parts)},
                       asked](auto& transport) mutable {
      return transport.reduce_scatter(to, from, asked);
    };
    const int64_t detail = options.reduceOp;
    return Operations{
        {name, OpType::REDUCE_SCATTER, parts, outputs, post, divide, detail}};
  });
}

// Gloo would compare the first dimensions.
static at::Tensor flat(const at::Tensor& tensor) {
  return own(tensor).as_strided({tensor.numel()}, {1});
}

Operation Collectives::scatter_from(
    const at::Tensor& output,
    const at::Tensor& input,
    c10d::ReduceScatterOptions options) const {
  const char* const name = "c10d::_reduce_scatter_base";
  check_tensors(name, {input}, {output});
  check_parts(name, input, output, size_);
  check_reduction(name, input, options.reduceOp);
  const int64_t detail = options.reduceOp;
  auto to = flat(output);
  const auto divide = divide_after_sum(options, {to}, size_);
  return {
      name,
      OpType::_REDUCE_SCATTER_BASE,
      {input},
      {output},
      [to, from = flat(input), options](auto& transport) mutable {
        return transport._reduce_scatter_base(to, from, options);
      },
      divide,
      detail};
}

WorkPtr Collectives::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  return start(
      [&] { return Operations{scatter_from(output, input, options)}; });
}

WorkPtr Collectives::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  return start([&] {
    check_some("c10d::coalesced", inputs);
    Operations operations;
    for (size_t i = 0; i < inputs.size(); ++i) {
      operations.push_back(scatter_from(outputs.at(i), inputs[i], options));
    }
    return operations;
  });
}

// So parts may have any size, which Gloo's own exchange of lists refuses.
Operation Collectives::exchange(
    Operation call, int other, Tensors to, Tensors from) {
  const auto& like = call.inputs[0];
  const auto terms = [&](const Tensors& bytes) {
    const int64_t elements = bytes[0].numel() / like.element_size();
    return Handshake::Terms{call.type, like.scalar_type(), elements, 0};
  };
  // [collectives-pairs] Each pair of ranks agrees and exchanges for itself.
  const Handshake::Side told{other, terms(from)}, expected{other, terms(to)};
  call.handshake = shake_hands({told}, {expected}, handshake_tag);
  const auto sent = std::make_shared<WorkPtr>();
  call.post = [to, from, other, sent](auto& transport) mutable {
    auto received = transport.recv(to, other, handshake_tag);
    *sent = transport.send(from, other, handshake_tag);
    return received;
  };
  call.finish = [sent] { (*sent)->wait(); };
  // [/collectives-pairs]
  return call;
}

Collectives::Operations Collectives::exchange_all(
    Operation call, const Tensors& to, const Tensors& from) {
  const at::Tensor &kept = to[rank_], &given = from[rank_];
  TORCH_CHECK(
      kept.numel() == given.numel(),
      "openreg: ",
      call.name,
      " gives this rank ",
      given.numel(),
      " bytes of its own, and it expects ",
      kept.numel(),
      ".");
  call.handshake = shake_hands({}, {}, handshake_tag);  // with nobody
  call.post = [kept, given](auto&) {
    std::memcpy(kept.data_ptr(), given.const_data_ptr(), given.numel());
    return nullptr;
  };
  Operations all{call};
  call.results.clear();
  for (int i = 1; i < size_; ++i) {
    const int other = (rank_ + i) % size_;
    all.push_back(exchange(call, other, {to[other]}, {from[other]}));
  }
  return all;
}

// The bytes of each rank's part: of so many rows each, or of equal parts.
static Tensors parts_of(
    const at::Tensor& tensor, std::vector<int64_t> rows, int size) {
  c10d::checkSplitSizes(rows, tensor, size);
  const int64_t whole = rows.empty() ? size : tensor.size(0);
  rows.resize(size, 1);
  const auto bytes = bytes_of(tensor);
  for (auto& part : rows) {
    part *= whole == 0 ? 0 : bytes.numel() / whole;
  }
  return bytes.split_with_sizes(rows);
}

WorkPtr Collectives::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_sizes,
    std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions&) {
  return start([&] {
    const char* const name = "c10d::alltoall_base";
    check_tensors(name, {input}, {output});
    check_dtype(name, input, output);
    return exchange_all(
        {name, OpType::ALLTOALL_BASE, {input}, {output}, nullptr, nullptr},
        parts_of(output, output_sizes, size_),
        parts_of(input, input_sizes, size_));
  });
}

WorkPtr Collectives::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  return start([&] {
    const char* const name = "c10d::alltoall";
    check_tensors(name, inputs, outputs);
    check_exchange(name, inputs, outputs, size_);
    return exchange_all(
        {name, OpType::ALLTOALL, inputs, outputs, nullptr, nullptr},
        bytes_of(outputs),
        bytes_of(inputs));
  });
}

WorkPtr Collectives::barrier(const c10d::BarrierOptions& options) {
  return start([&] {
    const auto post = [options](auto& transport) {
      return transport.barrier(options);
    };
    return Operations{
        {"c10d::barrier", OpType::BARRIER, {}, {}, post, nullptr}};
  });
}

}  // namespace openreg
