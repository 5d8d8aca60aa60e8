#pragma once

#include <torch/library.h>

#include "csrc/aten/core/registry.h"

// What each family of kernels registers; register.cpp calls them in order.

namespace openreg {

// The minimal set: nothing below may be missing.
void register_factories(torch::Library& library);
void register_views(torch::Library& library);
void register_copies(torch::Library& library);
void register_stream_use(torch::Library& library);
void register_dropout(torch::Library& library);

// Refusals of what works with the host's tensors alone.
void register_refusals(torch::Library& library);

// [kernels-minimal] The minimal set of kernels, all that a minimal build has.
inline void register_minimal_set(torch::Library& library) {
  register_factories(library);
  register_views(library);
  register_copies(library);
  register_stream_use(library);
  register_dropout(library);
  register_refusals(library);
}
// [/kernels-minimal]

// Operators whose one kernel for all devices follows data pointers as only the
// host may, or asks for the CPU by name.
inline constexpr const char* host_readers[] = {
    "range.out_",
    "_batch_norm_no_update",
    "_saturate_weight_to_fp16",
    "choose_qparams_optimized",
    "_sobol_engine_draw",
    "_sobol_engine_ff_",
    "_sobol_engine_initialize_state_",
    "_sobol_engine_scramble_"};

// The copying fallback for them, where there are no alias kernels.
void register_host_readers(torch::Library& library);

// Runs an operator on the host, on copies. A kernel that declines a call
// returns at::native::call_fallback_fn<&fallback, Op>::call(...). Raises where
// copies would be wrong.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// What PyTorch asks a backend to write itself.
void register_zero_tensor(torch::Library& library);
void register_convolution(torch::Library& library);
void register_recurrent(torch::Library& library);
void register_attention(torch::Library& library);

// Operators whose call is so short that every nanosecond shows. Without them
// the alias kernel or the fallback would serve.
void register_item(torch::Library& library);
void register_pointwise(torch::Library& library);

// Operators that may be queued, as those of pointwise and convolution may: the
// shape of their result is known before they run.
void register_fills(torch::Library& library);
void register_matmul(torch::Library& library);
void register_reductions(torch::Library& library);
void register_indexing(torch::Library& library);

}  // namespace openreg
