#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "csrc/runtime/device.h"

// What a call is refused for, before anything is launched: a kernel that fails
// takes the device with it.

namespace openreg {

using Tensors = std::vector<at::Tensor>;

// The bytes of a tensor, as one that the transport can move.
at::Tensor bytes_of(const at::Tensor& tensor);

// Raises unless all are plain tensors of one device, without gaps. A lazy clone
// among those that will be written becomes a copy.
void check_tensors(
    const char* name, const Tensors& inputs, const Tensors& results);

// Raises if there is none.
void check_some(const char* name, const Tensors& tensors);

// The one of `all`, tensors or lists of them; raises unless there is one.
template <typename T>
const T& only(const char* name, const std::vector<T>& all) {
  TORCH_CHECK(
      all.size() == 1,
      "openreg: ",
      name,
      " takes one tensor or list for each process, but got ",
      all.size(),
      ".");
  return all.front();
}

// Raises unless both are of one dtype.
void check_dtype(
    const char* name, const at::Tensor& one, const at::Tensor& other);

// Raises unless there are `count` of each, all of one dtype.
void check_exchange(
    const char* name,
    const Tensors& inputs,
    const Tensors& outputs,
    int64_t count);

// Raises unless there are `count` and all are of `like`'s dtype and size.
void check_alike(
    const char* name,
    const at::Tensor& like,
    const Tensors& tensors,
    int64_t count);

// Raises unless `whole` has `count` times the elements of `part`, of its dtype.
void check_parts(
    const char* name,
    const at::Tensor& whole,
    const at::Tensor& part,
    int64_t count);

// Raises unless the transport can reduce `tensor` so.
void check_reduction(
    const char* name, const at::Tensor& tensor, const c10d::ReduceOp& op);

}  // namespace openreg
