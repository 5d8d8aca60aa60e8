#pragma once

#include <pybind11/pybind11.h>

// What the files of the bindings add to torch_openreg._C.

namespace openreg {

void bind_sharing(pybind11::module_& m);

}  // namespace openreg
