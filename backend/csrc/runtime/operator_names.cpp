#include "csrc/runtime/operator_names.h"

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_set>

#include "device/openreg.h"

namespace openreg {

constinit thread_local const Call* LoopOf::current = nullptr;

// [operator-names-op] Names are copied, as a trace may outlive an operator.
const char* name_of(const c10::OperatorHandle& op) {
  const std::atomic_ref listeners(orTraceSubscribers);
  if (listeners.load(std::memory_order_relaxed) == 0) [[likely]] {
    return op.schema().name().c_str();
  }
  static auto* const names = new std::unordered_set<std::string>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return names->insert(c10::toString(op.operator_name())).first->c_str();
}
// [/operator-names-op]

}  // namespace openreg
