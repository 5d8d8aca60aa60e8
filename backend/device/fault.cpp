#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "device/device.h"
#include "device/fault.h"

// The host touched device memory: say so, then let the process die as it
// would have. All of this runs in a signal handler, where nothing may lock or
// allocate.

namespace emulator {

namespace {

// Text in a buffer that is never overrun and always ends in NUL.
class Line {
 public:
  Line(char* buffer, size_t size)
      : start_(buffer), place_(buffer), last_(buffer + size - 1) {
    *place_ = '\0';
  }

  Line& text(const char* characters) {
    while (*characters != '\0' && place_ != last_) {
      *place_++ = *characters++;
    }
    *place_ = '\0';
    return *this;
  }

  Line& number(uintptr_t value, unsigned radix = 10) {
    char digits[24];
    char* digit = digits + sizeof(digits);
    *--digit = '\0';
    do {
      *--digit = "0123456789abcdef"[value % radix];
      value /= radix;
    } while (value != 0);
    return text(digit);
  }

  Line& address(uintptr_t value) {
    return text("0x").number(value, 16);
  }

  size_t length() const {
    return static_cast<size_t>(place_ - start_);
  }

 private:
  char* start_;
  char* place_;
  char* last_;
};

struct sigaction previous_segv;
struct sigaction previous_bus;

// [dev-hand-over] Passes the signal on to the handler that was there before.
void hand_over(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous =
      signal == SIGSEGV ? previous_segv : previous_bus;
  const bool sent = info->si_code <= 0;  // by kill() or raise(): no fault
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler == SIG_IGN && sent) {
    return;
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // The faulting instruction runs again when this returns, now without us.
    sigaction(signal, &previous, nullptr);
    if (sent) {
      raise(signal);
    }
  }
}
// [/dev-hand-over]

// [dev-on-fault] Prints one line with write(2), since stdio may be locked.
void on_fault(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (info->si_code > 0) {
    char line[512];
    size_t length = orExplainFault(info->si_addr, line, sizeof(line) - 1);
    if (length != 0) {
      line[length++] = '\n';
      [[maybe_unused]] const ssize_t written =
          write(STDERR_FILENO, line, length);
    }
  }
  errno = saved_errno;
  hand_over(signal, info, context);
}
// [/dev-on-fault]

}  // namespace

// On the alternate stack, where there is one.
void install_fault_handler() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

}  // namespace emulator

using namespace emulator;

// [dev-explain-fault] What the device knows about an address.
size_t orExplainFault(const void* address, char* buffer, size_t size) {
  const Machine* const machine = ready_machine.load();
  if (machine == nullptr || !in_device_range(address) || buffer == nullptr ||
      size == 0) {
    return 0;
  }
  const uintptr_t place = to_integer(address);
  const Device& device = *owner_of(machine, address);
  Line line(buffer, size);
  line.text("openreg: the host touched device memory at ").address(place);
  line.text(": device ").number(device.index).text(", ");
  uintptr_t base = 0;
  size_t bytes = 0;
  for (const Record* record = device.records; record != nullptr;
       record = record->next) {
    // Read once each: other threads may be changing them.
    const uintptr_t start = record->base;
    const size_t count = record->size;
    if (place - start < count) {
      base = start;
      bytes = count;
    }
  }
  if (base == 0) {
    line.text("no live block (freed, or never allocated)");
  } else {
    line.text("byte ").number(place - base).text(" of the block of ");
    line.number(bytes).text(" bytes at ").address(base);
  }
  line.text(". Copy it to the host first, as x.cpu() does.");
  return line.length();
}
// [/dev-explain-fault]
