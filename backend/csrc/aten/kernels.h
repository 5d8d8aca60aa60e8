#pragma once

#include "csrc/aten/registry.h"

// What each family of kernels registers; register.cpp calls them in order.

namespace openreg {

// The minimal set: nothing below may be missing.
void register_factories(const Registrar& add);
void register_views(const Registrar& add);
void register_copies(const Registrar& add);
void register_stream_use(const Registrar& add);
void register_dropout(const Registrar& add);

// [kernels-minimal] The minimal set, of which the minimal build is made.
inline void register_minimal_set(const Registrar& add) {
  register_factories(add);
  register_views(add);
  register_copies(add);
  register_stream_use(add);
  register_dropout(add);
}
// [/kernels-minimal]

// What PyTorch asks a backend to write itself.
void register_zero_tensor(const Registrar& add);
void register_shallow_copy(const Registrar& add);
void register_convolution(const Registrar& add);
void register_recurrent(const Registrar& add);
void register_attention(const Registrar& add);
void register_dropout_backward(const Registrar& add);

// Operators whose call is so short that every nanosecond shows. Without them
// the alias kernel or the fallback would serve.
void register_pointwise(const Registrar& add);

// Operators that are queued: their result's shape is known before they run.
void register_item(const Registrar& add);
void register_fills(const Registrar& add);
void register_matmul(const Registrar& add);
void register_reductions(const Registrar& add);
void register_indexing(const Registrar& add);

}  // namespace openreg
