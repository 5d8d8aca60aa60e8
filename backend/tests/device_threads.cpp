// Eight threads allocate, fill and check blocks on all devices at once. At the
// end every byte is free again.
//
// Its argument is the number of rounds, 2000 without one.

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "device/openreg.h"
#include "tests/device_check.h"

namespace {

constexpr int kThreads = 8;
constexpr size_t kMostBlocks = 16;
constexpr size_t kMostBytes = 40000;

struct Block {
  void* pointer;
  size_t size;
  unsigned char pattern;
};

struct Fill {
  unsigned char* start;
  size_t size;
  unsigned char pattern;
};

// A kernel, which finds its memory at a constant distance.
orError_t fill(void* args) {
  const Fill& work = *static_cast<Fill*>(args);
  for (size_t place = 0; place < work.size; ++place) {
    work.start[place] = work.pattern;
  }
  return orSuccess;
}

void release_fill(void* args) {
  delete static_cast<Fill*>(args);
}

void check_and_free(const Block& block) {
  std::vector<unsigned char> bytes(block.size);
  SUCCEED(
      orMemcpy(bytes.data(), block.pointer, block.size, orMemcpyDeviceToHost));
  for (const unsigned char byte : bytes) {
    CHECK(byte == block.pattern);
  }
  SUCCEED(orFree(block.pointer));
}

Block make_block(std::mt19937& chance, unsigned char pattern) {
  Block block{nullptr, 1 + chance() % kMostBytes, pattern};
  SUCCEED(orMalloc(&block.pointer, block.size));
  orPointerAttributes attributes;
  const auto middle = static_cast<char*>(block.pointer) + block.size / 2;
  SUCCEED(orPointerGetAttributes(&attributes, middle));
  CHECK(attributes.base == block.pointer && attributes.size == block.size);
  if (chance() % 2 == 0) {
    SUCCEED(orMemset(block.pointer, pattern, block.size));
    return block;
  }
  orAddressSpace space;
  SUCCEED(orGetAddressSpace(&space));
  const auto start =
      static_cast<unsigned char*>(block.pointer) + space.kernel_offset;
  SUCCEED(orLaunchKernel(
      nullptr,
      "fill",
      fill,
      new Fill{start, block.size, pattern},
      release_fill));
  return block;
}

void work(int thread, int rounds) {
  int devices = 0;
  SUCCEED(orGetDeviceCount(&devices));
  std::mt19937 chance(thread);
  std::vector<Block> live;
  for (int round = 0; round < rounds; ++round) {
    SUCCEED(orSetDevice(static_cast<int>(chance() % devices)));
    if (live.size() == kMostBlocks) {
      const size_t victim = chance() % live.size();
      check_and_free(live[victim]);
      live[victim] = live.back();
      live.pop_back();
    }
    live.push_back(make_block(chance, thread * 31 + round));
    char line[256];  // whatever it says, it must not disturb the others
    CHECK(orExplainFault(live[0].pointer, line, sizeof(line)) != 0);
    void* pinned = nullptr;
    SUCCEED(orMallocHost(&pinned, 1 + chance() % 100));
    SUCCEED(orFreeHost(pinned));
  }
  for (const Block& block : live) {
    check_and_free(block);
  }
}

}  // namespace

int main(int words, char** word) {
  const int rounds = words > 1 ? std::atoi(word[1]) : 2000;
  // The first use of the device is part of the race.
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(work, thread, rounds);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  int devices = 0;
  SUCCEED(orGetDeviceCount(&devices));
  for (int device = 0; device < devices; ++device) {
    SUCCEED(orSetDevice(device));
    size_t free = 0;
    size_t total = 0;
    SUCCEED(orMemGetInfo(&free, &total));
    CHECK(free == total);
  }
  std::printf(
      "%d threads, %d devices: all bytes free again\n", kThreads, devices);
}
