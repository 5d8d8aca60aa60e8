// The chain of signal handlers, seen from a process that survives it. The
// argument names the handler that was there before the device was used.

#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/openreg.h"

namespace {

sigjmp_buf before_fault;
const void* seen_address = nullptr;

void check(bool good, const char* what) {
  if (!good) {
    std::fprintf(stderr, "failed: %s (%s)\n", what, orGetErrorDetail());
    std::exit(1);
  }
}

#define CHECK(condition) check(condition, #condition)

void with_information(int, siginfo_t* info, void*) {
  seen_address = info->si_addr;
  siglongjmp(before_fault, 1);
}

void plain(int) {
  siglongjmp(before_fault, 1);
}

const char* use_device() {
  void* pointer = nullptr;
  CHECK(orMalloc(&pointer, 1000) == orSuccess);
  return static_cast<const char*>(pointer);
}

// Follows a device pointer and comes back by the handler's jump.
void touch(const char* pointer) {
  if (sigsetjmp(before_fault, 1) == 0) {
    static_cast<void>(*static_cast<const volatile char*>(pointer));
    check(false, "the host cannot read device memory");
  }
}

void after_siginfo() {
  struct sigaction action = {};
  action.sa_sigaction = with_information;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGSEGV, &action, nullptr) == 0);
  const char* const pointer = use_device() + 24;
  touch(pointer);
  CHECK(seen_address == pointer);
}

void after_plain() {
  signal(SIGSEGV, plain);
  touch(use_device());
}

// A signal that somebody sent has no address, whatever is in its place.
void after_ignored() {
  signal(SIGBUS, SIG_IGN);
  siginfo_t sent = {};
  sent.si_code = SI_QUEUE;
  sent.si_addr = const_cast<char*>(use_device());
  const pid_t self = getpid();
  CHECK(syscall(SYS_rt_tgsigqueueinfo, self, self, SIGBUS, &sent) == 0);
  struct sigaction now = {};
  sigaction(SIGBUS, nullptr, &now);
  CHECK((now.sa_flags & SA_SIGINFO) != 0);  // the device's is still there
}

// The default action would end the process. So the signal is blocked but while
// sigsuspend waits, and what the device's handler raises stays pending.
void after_default() {
  use_device();
  sigset_t only_bus;
  sigset_t before;
  sigemptyset(&only_bus);
  sigaddset(&only_bus, SIGBUS);
  sigprocmask(SIG_BLOCK, &only_bus, &before);
  raise(SIGBUS);
  sigsuspend(&before);
  sigset_t pending;
  sigpending(&pending);
  CHECK(sigismember(&pending, SIGBUS) == 1);
  struct sigaction now = {};
  sigaction(SIGBUS, nullptr, &now);
  CHECK(now.sa_handler == SIG_DFL);
  signal(SIGBUS, SIG_IGN);  // which discards it
}

}  // namespace

int main(int, char** arguments) {
  const char* const earlier = arguments[1];
  if (std::strcmp(earlier, "siginfo") == 0) {
    after_siginfo();
  } else if (std::strcmp(earlier, "plain") == 0) {
    after_plain();
  } else if (std::strcmp(earlier, "ignored") == 0) {
    after_ignored();
  } else if (std::strcmp(earlier, "default") == 0) {
    after_default();
  } else {
    check(false, "expected siginfo, plain, ignored or default");
  }
}
