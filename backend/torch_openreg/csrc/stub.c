#include <Python.h>

/* [stub-entry] All that Python loads itself; it calls libtorch_bindings.so. */
PyObject* openreg_create_module(void);

PyMODINIT_FUNC PyInit__C(void);

PyMODINIT_FUNC PyInit__C(void) {
  return openreg_create_module();
}
/* [/stub-entry] */
