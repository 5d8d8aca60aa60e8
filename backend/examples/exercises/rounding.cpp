#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

// An exercise of the chapter Memory: the cache of the toy allocator, without
// PyTorch. A block serves only requests of exactly its size. Round every size
// up to a multiple of 512 bytes.
//
//   nox -s tests -- backend/tests/judge.py -k rounding

namespace {

struct Block {
  void* address;
  std::size_t bytes;
};
std::mutex mutex;
std::map<std::size_t, std::vector<Block*>> kept;

}  // namespace

extern "C" {

Block* take(std::size_t bytes) {
  const std::lock_guard lock(mutex);
  auto& list = kept[bytes];
  if (list.empty()) {
    return new Block{std::malloc(bytes), bytes};
  }
  Block* const block = list.back();
  list.pop_back();
  return block;
}

void give_back(Block* block) {
  const std::lock_guard lock(mutex);
  kept[block->bytes].push_back(block);
}

}  // extern "C"

// expect: ok
