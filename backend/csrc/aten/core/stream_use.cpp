#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "csrc/aten/core/kernels.h"
#include "csrc/runtime/allocator.h"

namespace openreg {
namespace {

// [stream-use-record] Tells the pool that another stream reads this tensor.
void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}
// [/stream-use-record]

}  // namespace

void register_stream_use(torch::Library& library) {
  library.impl("record_stream", &record_stream);
}

}  // namespace openreg
