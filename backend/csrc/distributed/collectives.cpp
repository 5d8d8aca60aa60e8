#include <algorithm>
#include <array>
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

// [collectives-average] A mean is a sum, divided in the same kernel.
std::function<void()> divide_after_sum(
    ReduceOp& op, const at::Tensor& alias, int size) {
  if (op != ReduceOp::AVG) {
    return [] {};
  }
  op = ReduceOp::SUM;
  return [alias, size] {
    const bool whole = c10::isIntegralType(alias.scalar_type(), true);
    alias.div_(size, whole ? std::optional("trunc") : std::nullopt);
  };
}
// [/collectives-average]

// Gloo would compare the first dimensions.
at::Tensor flat(const at::Tensor& tensor) {
  return own(tensor).as_strided({tensor.numel()}, {1});
}

// What is coalesced, all in one kernel.
template <typename Make>
std::vector<Operation> of_each(const Tensors& tensors, Make&& make) {
  check_some("c10d::coalesced", tensors);
  std::vector<Operation> all;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::ranges::move(make(i), std::back_inserter(all));
  }
  return all;
}

at::Tensor& add(
    at::Tensor& sum, const at::Tensor& one, const at::Tensor& other) {
  return at::add_out(sum, one, other);
}

// In the order of c10d's operators.
constexpr std::array<decltype(&add), 8> combine{
    add,
    add,
    at::mul_out,
    at::minimum_out,
    at::maximum_out,
    at::bitwise_and_out,
    at::bitwise_or_out,
    at::bitwise_xor_out};

}  // namespace

WorkPtr Collectives::broadcast(
    Tensors& tensors, const c10d::BroadcastOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::broadcast";
    check_tensors(name, {}, {only(name, tensors)});
    const int64_t root = options.rootRank;
    const auto post = [x = bytes_of(tensors),
                       options](auto& transport) mutable {
      return transport.broadcast(x, options);
    };
    return Operations{{name, OpType::BROADCAST, {}, tensors, post, root}};
  });
}

// [collectives-allreduce] A collective checks, aliases, and says what to post.
Collectives::Operations Collectives::reduce_to_all(
    Operation call, c10d::AllreduceOptions options) {
  const at::Tensor& tensor = call.results[0];
  check_reduction(call.name, tensor, options.reduceOp);
  if (size_ > 1 && tensor.nbytes() * size_ <= 4 << 20) {
    call.inputs = call.results;
    return reduce_shares(call, Tensors(size_, flat(tensor)), options.reduceOp);
  }
  call.detail = options.reduceOp;
  Tensors x{own(tensor)};
  call.finish = divide_after_sum(options.reduceOp, x[0], size_);
  call.post = [x, options](auto& transport) mutable {
    return transport.allreduce(x, options);
  };
  return {call};
}

WorkPtr Collectives::allreduce(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::allreduce";
    check_tensors(name, {}, {only(name, tensors)});
    return reduce_to_all({name, OpType::ALLREDUCE, {}, tensors}, options);
  });
}
// [/collectives-allreduce]

WorkPtr Collectives::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::allreduce_coalesced";
    check_tensors(name, {}, tensors);
    const auto type = OpType::ALLREDUCE_COALESCED;
    return of_each(tensors, [&](size_t i) {
      return reduce_to_all({name, type, {}, {tensors[i]}}, options);
    });
  });
}

WorkPtr Collectives::reduce(
    Tensors& tensors, const c10d::ReduceOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::reduce";
    check_tensors(name, {}, {only(name, tensors)});
    check_reduction(name, tensors[0], options.reduceOp);
    Tensors x{own(tensors[0])};
    auto asked = options;
    auto divide = divide_after_sum(asked.reduceOp, x[0], size_);
    if (options.rootRank != rank_) {
      divide = nullptr;
    }
    const auto post = [x, asked](auto& transport) mutable {
      return transport.reduce(x, asked);
    };
    const int64_t detail = options.rootRank << 8 | options.reduceOp;
    return Operations{
        {name, OpType::REDUCE, {}, tensors, post, detail, divide}};
  });
}

Collectives::Operations Collectives::gather_into(
    const at::Tensor& output, const at::Tensor& input) {
  const char* const name = "c10d::_allgather_base";
  check_tensors(name, {input}, {output});
  check_parts(name, output, input, size_);
  return exchange_all(
      {name, OpType::_ALLGATHER_BASE, {input}, {output}},
      bytes_of(output).chunk(size_),
      Tensors(size_, bytes_of(input)));
}

Collectives::Operations Collectives::gather_all(
    const Tensors& outputs, const at::Tensor& input, OpType type) {
  const char* const name = "c10d::allgather";
  check_exchange(name, Tensors(size_, input), outputs, size_);
  check_tensors(name, {input}, outputs);
  return exchange_all(
      {name, type, {input}, outputs},
      bytes_of(outputs),
      Tensors(size_, bytes_of(input)));
}

WorkPtr Collectives::allgather(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::allgather";
    const auto& input = only(name, inputs);
    return gather_all(only(name, outputs), input, OpType::ALLGATHER);
  });
}

WorkPtr Collectives::_allgather_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::AllgatherOptions& options) {
  return start(!options.asyncOp, [&] { return gather_into(output, input); });
}

WorkPtr Collectives::allgather_coalesced(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  return start(!options.asyncOp, [&] {
    return of_each(inputs, [&](size_t i) {
      Tensors of_input;
      for (const auto& of_rank : outputs) {
        of_input.push_back(of_rank.at(i));
      }
      return gather_all(of_input, inputs[i], OpType::ALLGATHER_COALESCED);
    });
  });
}

WorkPtr Collectives::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return start(!options.asyncOp, [&] {
    return of_each(inputs, [&](size_t i) {
      return gather_into(outputs.at(i), inputs[i]);
    });
  });
}

WorkPtr Collectives::gather(
    std::vector<Tensors>& outputs,
    Tensors& inputs,
    const c10d::GatherOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::gather";
    const auto& input = only(name, inputs);
    const int64_t root = options.rootRank;
    const auto results = root == rank_ ? only(name, outputs) : Tensors();
    check_alike(name, input, results, root == rank_ ? size_ : 0);
    check_tensors(name, inputs, results);
    std::vector to(root == rank_, bytes_of(results));
    const auto post =
        [to, from = bytes_of(inputs), options](auto& transport) mutable {
          return transport.gather(to, from, options);
        };
    return Operations{{name, OpType::GATHER, inputs, results, post, root}};
  });
}

WorkPtr Collectives::scatter(
    Tensors& outputs,
    std::vector<Tensors>& inputs,
    const c10d::ScatterOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::scatter";
    const auto& output = only(name, outputs);
    const int64_t root = options.rootRank;
    const auto parts = root == rank_ ? only(name, inputs) : Tensors();
    check_alike(name, output, parts, root == rank_ ? size_ : 0);
    check_tensors(name, parts, outputs);
    std::vector from(root == rank_, bytes_of(parts));
    const auto post =
        [to = bytes_of(outputs), from, options](auto& transport) mutable {
          return transport.scatter(to, from, options);
        };
    return Operations{{name, OpType::SCATTER, parts, outputs, post, root}};
  });
}

WorkPtr Collectives::reduce_scatter(
    Tensors& outputs,
    std::vector<Tensors>& inputs,
    const c10d::ReduceScatterOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::reduce_scatter";
    const auto& output = only(name, outputs);
    auto parts = only(name, inputs);
    check_exchange(name, parts, Tensors(size_, output), size_);
    check_alike(name, output, {parts[rank_]}, 1);
    check_tensors(name, parts, outputs);
    const Operation call{name, OpType::REDUCE_SCATTER, parts, outputs};
    std::ranges::transform(parts, parts.begin(), flat);
    return reduce_shares(call, parts, options.reduceOp);
  });
}

Collectives::Operations Collectives::reduce_to_parts(
    const at::Tensor& output,
    const at::Tensor& input,
    const c10d::ReduceOp& op) {
  const char* const name = "c10d::_reduce_scatter_base";
  check_tensors(name, {input}, {output});
  check_parts(name, input, output, size_);
  const Operation call{name, OpType::_REDUCE_SCATTER_BASE, {input}, {output}};
  return reduce_shares(call, flat(input).chunk(size_), op);
}

WorkPtr Collectives::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  return start(!options.asyncOp, [&] {
    return reduce_to_parts(output, input, options.reduceOp);
  });
}

WorkPtr Collectives::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& options) {
  return start(!options.asyncOp, [&] {
    return of_each(inputs, [&](size_t i) {
      return reduce_to_parts(outputs.at(i), inputs[i], options.reduceOp);
    });
  });
}

// [collectives-shares] Each rank receives its parts from all, and sums them.
// It does so in the order of ranks, so that all ranks get the same sum.
Collectives::Operations Collectives::reduce_shares(
    Operation call, Tensors shares, ReduceOp op) {
  check_reduction(call.name, call.inputs[0], op);
  call.detail = op;
  Operation last = call;
  call.results.clear();
  const auto parts = shares;
  Operations all;
  for (int i = 1; i < size_; ++i) {
    const int other = (rank_ + i) % size_;
    shares[other] = at::empty_like(parts[rank_]);
    all.push_back(exchange(call, other, shares[other], parts[other]));
  }
  auto result = flat(last.results[0]);
  const auto divide = divide_after_sum(op, result, size_);
  last.finish = [=, own = rank_, reduce = combine.at(call.detail)]() mutable {
    auto total = shares[0];
    for (size_t i = 1; i < shares.size(); ++i) {
      auto& sum = i + 1 == shares.size() ? result : shares[own == 0];
      total = reduce(sum, total, shares[i]);
    }
    result.copy_(total);  // of who is alone
    divide();
  };
  all.push_back(last);
  return all;
}
// [/collectives-shares]

// Whether the caller's stream and the group have done all before.
bool Collectives::is_idle(const at::Tensor& tensor) const {
  return orStreamRunsInline(current_stream(tensor.device().index())) != 0 &&
         orStreamQuery(handle_of(lane_->stream())) == orSuccess;
}

// The tag holds what tells it apart: from offers that were not met, from other
// calls of one kernel, and from parts of another size.
int Collectives::offer(int other, int bytes) {
  const std::lock_guard lock(words_mutex_);
  const auto& [asked, calls, lost] = peers_[other];
  return handshake_tag | *lost % 32 << 25 | calls << 21 | bytes;
}

// So parts may have any size, which Gloo's own exchange of lists refuses.
Operation Collectives::exchange(
    Operation call, int other, const at::Tensor& to, const at::Tensor& from) {
  const auto& like = call.inputs[0];
  choose(like.device().index());
  const auto given = static_cast<int64_t>(from.nbytes());
  const auto taken = static_cast<int64_t>(to.nbytes());
  const auto size = like.element_size();
  Handshake::Terms terms{
      call.type, like.scalar_type(), given / size, call.detail, taken / size};
  const bool small = given <= Handshake::most_carried;
  if (!small && given == taken && given <= Handshake::most_offered) {
    terms.offer = offer(other, static_cast<int>(given));
  }
  Handshake::Side told{other, terms}, expected = told;
  std::swap(expected.terms.elements, expected.terms.returns);
  if (small && is_idle(like)) {
    told.terms.carry = true;
    told.bytes = from;
  }
  // [collectives-pairs] Each pair of ranks agrees and exchanges on its own.
  const auto handshake = shake_hands(told, expected, handshake_tag);
  call.post = [=](auto& transport) {
    handshake->post(transport, {to}, {from}, handshake_tag);
    return WorkPtr();
  };
  call.finish = [handshake] { handshake->finish(); };
  call.handshake = handshake;
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
  Operations all{call};
  all[0].finish = [kept, given] {
    std::memmove(kept.data_ptr(), given.const_data_ptr(), given.numel());
  };
  call.results.clear();
  for (int i = 1; i < size_; ++i) {
    const int other = (rank_ + i) % size_;
    all.push_back(exchange(call, other, to[other], from[other]));
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
    const c10d::AllToAllOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::alltoall_base";
    check_tensors(name, {input}, {output});
    check_dtype(name, input, output);
    return exchange_all(
        {name, OpType::ALLTOALL_BASE, {input}, {output}},
        parts_of(output, output_sizes, size_),
        parts_of(input, input_sizes, size_));
  });
}

WorkPtr Collectives::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return start(!options.asyncOp, [&] {
    const char* const name = "c10d::alltoall";
    check_tensors(name, inputs, outputs);
    check_exchange(name, inputs, outputs, size_);
    return exchange_all(
        {name, OpType::ALLTOALL, inputs, outputs},
        bytes_of(outputs),
        bytes_of(inputs));
  });
}

WorkPtr Collectives::barrier(const c10d::BarrierOptions& options) {
  return start(!options.asyncOp, [&] {
    const auto post = [options](auto& transport) {
      return transport.barrier(options);
    };
    return Operations{{"c10d::barrier", OpType::BARRIER, {}, {}, post}};
  });
}

}  // namespace openreg
