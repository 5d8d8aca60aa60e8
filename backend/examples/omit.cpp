#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>

// Leaves one kernel of a backend, any backend, unregistered, to see what it is
// for. The linker finds the functions below before PyTorch's own, and they
// call those for every other kernel.
//
//   c++ -std=c++20 -shared -fPIC omit.cpp -o omit.so
//   LD_PRELOAD=./omit.so OMIT=view python program.py
//
// OMIT is the name that the registration uses, such as view.dtype, if need be
// with the key, as in Conjugate:_copy_from; `fallback` is the backend's.

namespace c10 {
enum class DispatchKey : uint16_t;
}

namespace torch {

// Declared once more, because the header takes half a minute to compile and
// makes these members private.
class CppFunction;
enum class _RegisterOrVerify {};

struct Library {
  enum Kind {};
  using Key = std::optional<c10::DispatchKey>;

  Library(Kind, std::string space, Key, const char* file, uint32_t line);
  Library& _impl(const char* name, CppFunction&&, _RegisterOrVerify) &;
  Library& _fallback(CppFunction&&) &;
};

namespace {

// A name that no backend registers would leave out nothing, so it ends the
// process with a message.
struct Omission {
  const char* name = std::getenv("OMIT");
  bool looked = false;
  bool met = false;

  ~Omission() {
    if (looked && !met) {
      std::fprintf(stderr, "OMIT is '%s', which names no kernel\n", name);
      std::_Exit(EXIT_FAILURE);
    }
  }
} omission;

std::map<const Library*, std::string> keys;

bool is_torch(void* code) {
  Dl_info from;
  return dladdr(code, &from) != 0 &&
         std::strstr(from.dli_fname, "libtorch_cpu.so") != nullptr;
}

template <typename Function>
Function* torchs(const char* symbol) {
  static void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(torch, symbol));
}

// [omit-kernels] Intercepts PyTorch's functions for registration.
bool omits(const Library* library, const std::string& name, void* caller) {
  if (omission.name == nullptr) {
    return false;
  }
  omission.looked = true;
  const bool omit =
      (name == omission.name || keys[library] + ":" + name == omission.name) &&
      !is_torch(caller);
  omission.met |= omit;
  return omit;
}

}  // namespace

Library& Library::_impl(
    const char* name, CppFunction&& kernel, _RegisterOrVerify how) & {
  constexpr auto symbol =
      "_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE";
  using Impl =
      Library&(Library*, const char*, CppFunction&&, _RegisterOrVerify);
  if (omits(this, name, __builtin_return_address(0))) {
    return *this;
  }
  return torchs<Impl>(symbol)(this, name, std::move(kernel), how);
}
// [/omit-kernels]

Library& Library::_fallback(CppFunction&& kernel) & {
  constexpr auto symbol = "_ZNR5torch7Library9_fallbackEONS_11CppFunctionE";
  if (omits(this, "fallback", __builtin_return_address(0))) {
    return *this;
  }
  using Fallback = Library&(Library*, CppFunction&&);
  return torchs<Fallback>(symbol)(this, std::move(kernel));
}

Library::Library(
    Kind kind, std::string space, Key key, const char* file, uint32_t line) {
  constexpr auto symbol =
      "_ZN5torch7LibraryC1ENS0_4KindENSt7__cxx1112basic_stringIcSt11char_traits"
      "IcESaIcEEESt8optionalIN3c1011DispatchKeyEEPKcj";
  using Make = void(Library*, Kind, std::string, Key, const char*, uint32_t);
  torchs<Make>(symbol)(this, kind, space, key, file, line);
  if (key.has_value()) {
    using ToString = const char*(c10::DispatchKey);
    keys[this] = torchs<ToString>("_ZN3c108toStringENS_11DispatchKeyE")(*key);
  }
}

}  // namespace torch

// expect: ok
