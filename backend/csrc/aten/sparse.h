#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

// Sparse tensors have no storage. They are made of tensors that have: indices
// and values. So what is done to a tensor's memory is done to its parts.

namespace openreg {

// Returns what stands for a part on the other side.
using ChangeSides = c10::function_ref<at::Tensor(const at::Tensor&)>;

// Whether `layout` is one of the sparse ones: COO, CSR, CSC, BSR, BSC.
bool is_sparse(at::Layout layout);

// A tensor on `device` of the layout and shape of `tensor`, which is sparse,
// and of its parts as `change` returns them.
at::Tensor make_sparse(
    const at::Tensor& tensor, c10::Device device, ChangeSides change);

// Gives `to` the shape and the changed parts of `from`, of the same layout.
void assign_sparse(
    const at::Tensor& to, const at::Tensor& from, ChangeSides change);

}  // namespace openreg
