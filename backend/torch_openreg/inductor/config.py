"""What Inductor keeps beside each compiled graph, as the key of its caches."""

import hashlib
import pathlib
import sys

from torch.utils._config_module import install_config_module

from torch_openreg import _C


# [py-config-version] A hash, so that no code of an older version is reused.
# Cached code calls the bindings, so the hash includes their library.
def _version() -> str:
    here = pathlib.Path(__file__).parent
    bindings = pathlib.Path(_C.__file__).parent / "lib/libtorch_bindings.so"
    files = [*sorted(here.glob("*.py")), bindings]
    code = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(code).hexdigest()


version: str = _version()
install_config_module(sys.modules[__name__])
# [/py-config-version]
