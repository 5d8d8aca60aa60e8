#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace {

std::mutex mutex;
std::map<std::uintptr_t, std::size_t> blocks;

}  // namespace

extern "C" {

void pinned(std::uintptr_t begin, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  blocks[begin] = bytes;
}

void unpinned(std::uintptr_t begin) {
  const std::lock_guard lock(mutex);
  blocks.erase(begin);
}

// [pinned-solution] Finds the last block that does not begin after the address.
bool is_pinned(std::uintptr_t address) {
  const std::lock_guard lock(mutex);
  auto block = blocks.upper_bound(address);
  if (block == blocks.begin()) {
    return false;
  }
  --block;
  return address - block->first < block->second;
}
// [/pinned-solution]

}  // extern "C"

// expect: ok
