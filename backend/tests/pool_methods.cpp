// The methods of PyTorch's allocators that only C++ calls. Linked with
// libtorch_openreg, c10 and torch_cpu, it prints the name of each method that
// did what it should.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace {

void check(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
  }
}

#define CHECK(condition) check(condition, #condition)

void device_methods() {
  auto* const allocator = c10::getDeviceAllocator(c10::kPrivateUse1);
  const auto allocated = [&] {
    return allocator->getDeviceStats(0).allocated_bytes[0].current;
  };
  void* const raw = allocator->raw_allocate(1000);
  CHECK(allocated() == 1024);
  allocator->raw_deallocate(raw);
  CHECK(allocated() == 0);
  std::puts("raw_deleter");
  // No bytes have no address, and no graph has the pool that is to be emptied.
  CHECK(allocator->clone(nullptr, 0).get() == nullptr);
  allocator->emptyCache({1, 0});
  // Freed twice it raises nothing, changes nothing, and is told of.
  allocator->raw_deallocate(raw);
  CHECK(allocated() == 0);
}

void host_methods() {
  auto* const allocator = at::getHostAllocator(c10::kPrivateUse1);
  auto data = allocator->allocate(100);
  std::memset(data.get(), 7, 100);
  CHECK(!allocator->is_simple_data_ptr(data));
  std::puts("is_simple_data_ptr");
  CHECK(allocator->raw_deleter() == nullptr);
  std::puts("raw_deleter");
  const auto copy = allocator->clone(data.get(), 100);
  CHECK(std::memcmp(copy.get(), data.get(), 100) == 0);
  std::puts("copy_data");

  const c10::Device device(c10::kPrivateUse1, 0);
  const c10::Stream stream(c10::Stream::DEFAULT, device);
  int foreign = 0;
  void* const context = data.get_context();
  CHECK(allocator->record_event(data.get(), context, stream));
  CHECK(allocator->record_event(data.get(), nullptr, stream));
  CHECK(!allocator->record_event(&foreign, nullptr, stream));
  std::puts("record_event");
}

// Memory of a private pool goes to nobody else, until the pool is released.
void private_pools() {
  auto* const allocator = at::getHostAllocator(c10::kPrivateUse1);
  const c10::MempoolId_t pool{1, 0};
  allocator->begin_allocate_to_pool(pool, [](c10::Stream) { return true; });
  auto inside = allocator->allocate(3000);
  void* const address = inside.get();
  allocator->end_allocate_to_pool(pool);
  inside.clear();
  const auto outside = allocator->allocate(3000);
  CHECK(outside.get() != address);
  std::puts("begin_allocate_to_pool");
  std::puts("end_allocate_to_pool");

  const auto frees = [&] { return allocator->get_stats().num_host_free; };
  allocator->empty_cache();  // of all that is in no private pool
  const auto kept = frees();
  allocator->empty_cache();
  CHECK(frees() == kept);
  allocator->release_pool(pool);
  allocator->empty_cache();
  CHECK(frees() == kept + 1);
  std::puts("release_pool");
}

}  // namespace

int main() {
  device_methods();
  host_methods();
  private_pools();
}
