#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/Quantizer.h>

#include "csrc/aten/core/arguments.h"

// Tensors that are more than their own memory are made of tensors that are not:
// a sparse one of indices and values, a quantized one of codes and a quantizer,
// a nested one of a buffer. What is done to memory is done to these parts.

namespace openreg {

// Whether `tensor` is sparse of any layout, quantized, or nested and strided.
bool has_parts(const at::Tensor& tensor);

// A tensor on `device` of the kind and shape of `tensor`, which has parts, and
// of its parts as `change` returns them.
at::Tensor make_of_parts(
    const at::Tensor& tensor, c10::Device device, ChangeSides change);

// Gives `to` the shape and the changed parts of `from`, of the same kind.
void assign_parts(
    const at::Tensor& to, const at::Tensor& from, ChangeSides change);

// The integers of a quantized tensor: a plain tensor over the same memory.
// Where several share a byte, the bytes of the whole storage.
at::Tensor codes_of(const at::Tensor& quantized);

// The quantizer, with scales and zero points as `change` returns them if there
// is one a channel.
at::QuantizerPtr change_quantizer(
    const at::QuantizerPtr& quantizer, ChangeSides change);

}  // namespace openreg
