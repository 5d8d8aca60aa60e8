// [current-device-solution] Each thread has its own; a bad index is refused.
namespace {

constexpr int device_count = 3;
thread_local int current = 0;

}  // namespace

extern "C" {

int get_device() {
  return current;
}

bool set_device(int device) {
  const bool valid = 0 <= device && device < device_count;
  if (valid) {
    current = device;
  }
  return valid;
}

int maybe_exchange_device(int device) {
  const int previous = current;
  return set_device(device) ? previous : -1;
}

}  // extern "C"
// [/current-device-solution]

// expect: ok
