// One operator runs on the host, although the device has a kernel for it.

#include <cstdio>

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace {

// [fallback-sub-kernel] PyTorch's fallback, as the kernel of one operator.
void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::printf("%s runs on the host\n", op.schema().name().c_str());
  std::fflush(stdout);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl(
      "sub.Tensor", torch::CppFunction::makeFromBoxedFunction<&on_host>());
}
// [/fallback-sub-kernel]

}  // namespace

// expect: ok
