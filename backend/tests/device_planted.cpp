// Faults on purpose: a sanitizer that says nothing about these is not on.
//
//   device_planted race      two streams share a number without an event
//   device_planted overflow  a kernel writes past the end of its array
//   device_planted shift     a kernel shifts further than a number is long

#include <cstdio>
#include <cstring>

#include "device/openreg.h"

namespace {

orError_t count(void* args) {
  for (int times = 0; times < 1000; ++times) {
    auto* const number = static_cast<volatile long*>(args);
    *number = *number + 1;
  }
  return orSuccess;
}

orError_t overflow(void* args) {
  static_cast<volatile char*>(args)[8] = 1;
  return orSuccess;
}

orError_t shift(void* args) {
  volatile int distance = 40;
  *static_cast<int*>(args) = 1 << distance;
  return orSuccess;
}

}  // namespace

int main(int words, char** word) {
  const bool race = words == 2 && std::strcmp(word[1], "race") == 0;
  const bool past = words == 2 && std::strcmp(word[1], "overflow") == 0;
  long* const number = new long(0);
  const orKernelFn kernel = race ? count : past ? overflow : shift;
  for (int streams = 0; streams < (race ? 2 : 1); ++streams) {
    orStream_t stream = nullptr;
    if (orStreamCreateWithPriority(&stream, 0) != orSuccess ||
        orLaunchKernel(stream, "fault", kernel, number, nullptr) != orSuccess) {
      return 2;
    }
  }
  if (orDeviceSynchronize() != orSuccess) {
    return 2;
  }
  std::printf("%s went unnoticed\n", word[1]);
  delete number;
}
