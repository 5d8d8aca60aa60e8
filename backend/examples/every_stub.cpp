// Registers a kernel with every DispatchStub of PyTorch: one that throws the
// stub's name. So the compiler and the linker prove which stubs a backend can
// register, and a call proves which stub its operator asks. The two included
// files are written by backend/tests/_extension.py.

#include <c10/util/Exception.h>

#include "stub_headers.inc"

namespace {

// [every-stub-throws] A function of the stub's type, which only throws.
template <typename Function>
struct Throws;

template <typename Result, typename... Args>
struct Throws<Result (*)(Args...)> {
  template <auto name>
  static Result call(Args...) {
    TORCH_CHECK(false, "asked: ", name());
  }
};

#define THROWS(stub)             \
  REGISTER_PRIVATEUSE1_DISPATCH( \
      stub, &Throws<decltype(stub)::FnPtr>::call<[] { return #stub; }>)
// [/every-stub-throws]

}  // namespace

#include "stub_registrations.inc"

// expect: ok
