#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/GraphImplInterface.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/graph/capture.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/launch.h"

// torch.accelerator.Graph: PyTorch's interface in front of the device's graphs.

namespace at {
namespace {

using openreg::Capture;

uint64_t next_pool() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// A pool's name in PyTorch is two numbers, of which one is 0.
uint64_t pool_number(MempoolId_t pool) {
  TORCH_CHECK(
      pool.second == 0,
      "openreg: a graph's pool is what pool() of another graph returned, but "
      "got (",
      pool.first,
      ", ",
      pool.second,
      ").");
  return pool.first == 0 ? next_pool() : pool.first;
}

// [graph-impl] The class that torch.accelerator.Graph calls.
class OpenRegGraph final : public GraphImplInterface {
 public:
  explicit OpenRegGraph(const GraphImplArgs&) {}
  ~OpenRegGraph() override {
    forget();
  }

  void capture_begin(MempoolId_t pool, GraphCaptureMode) override {
    TORCH_CHECK(
        capture_ == nullptr,
        "openreg: this graph has captured something; call reset() first.");
    const auto device = openreg::current_device();
    auto capture = std::make_shared<Capture>(device, pool_number(pool));
    const auto stream = openreg::current_stream(device);
    openreg::begin_capture(stream, capture);
    stream_ = stream;
    openreg::keep_private_pool(device, capture->pool);
    capture_ = std::move(capture);
  }

  void capture_end() override {
    TORCH_CHECK(
        capture_ != nullptr && stream_ != nullptr,
        "openreg: capture_end() without capture_begin().");
    try {
      graph_ = openreg::end_capture(std::exchange(stream_, nullptr));
    } catch (...) {
      forget();
      throw;
    }
  }
  // [/graph-impl]

  // The device has nothing more to prepare, so a graph may be kept or not.
  void instantiate() override {
    check_captured();
  }

  // [graph-replay] The graph goes to the current stream, like a kernel.
  // What draws random numbers takes its turn, as in eager mode, so that the
  // generator is the host's again when the call returns.
  void replay() override {
    check_captured();
    openreg::check_uses(*capture_);
    const auto device = capture_->device;
    const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
    const openreg::Call call(device, "graph");
    std::optional<openreg::Turn> turn;
    if (!capture_->generators.empty()) {
      turn.emplace(call);
    }
    OPENREG_CHECK_WAIT(orGraphLaunch(graph_, call.stream));
  }
  // [/graph-replay]

  void reset() override {
    TORCH_CHECK(
        stream_ == nullptr,
        "openreg: reset() in a capture; call capture_end() first.");
    forget();
  }

  MempoolId_t pool() const override {
    TORCH_CHECK(capture_ != nullptr, "openreg: pool() before capture_begin().");
    return {capture_->pool, 0};
  }

  void enable_debug_mode() override {
    may_dump_ = true;
  }

  void debug_dump(const std::string& path) override;

 private:
  void check_captured() const {
    TORCH_CHECK(
        graph_ != nullptr,
        "openreg: this graph has captured nothing; use it as `with graph:` "
        "around what it is to do.");
  }

  void forget() {
    if (stream_ != nullptr) {
      try {
        graph_ = openreg::end_capture(std::exchange(stream_, nullptr));
      } catch (const c10::Error&) {
        // It was broken, and is given up anyhow.
      }
    }
    if (graph_ != nullptr) {
      orGraphDestroy(std::exchange(graph_, nullptr));
    }
    if (capture_ != nullptr) {
      openreg::release_private_pool(capture_->device, capture_->pool);
      capture_.reset();
    }
  }

  bool may_dump_ = false;
  orStream_t stream_ = nullptr;  // while it captures
  orGraph_t graph_ = nullptr;
  std::shared_ptr<Capture> capture_;
};

// [graph-dump] Writes the graph as a file for Graphviz.
void OpenRegGraph::debug_dump(const std::string& path) {
  check_captured();
  TORCH_CHECK(
      may_dump_, "openreg: call enable_debug_mode() before debug_dump().");
  OPENREG_CHECK(orGraphDebugDotPrint(graph_, path.c_str()));
}
// [/graph-dump]

}  // namespace

// [graph-register] The key is the device type's name, in capitals.
REGISTER_GRAPH_IMPL(OPENREG, OpenRegGraph)
// [/graph-register]

}  // namespace at
