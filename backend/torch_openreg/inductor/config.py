"""What Inductor keeps beside each compiled graph, as the key of its caches."""

import hashlib
import pathlib
import sys

from torch.utils._config_module import install_config_module


# [py-config-version] A cached graph holds code of the files beside this one.
def _version() -> str:
    files = sorted(pathlib.Path(__file__).parent.glob("*.py"))
    code = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(code).hexdigest()


version: str = _version()
install_config_module(sys.modules[__name__])
# [/py-config-version]
