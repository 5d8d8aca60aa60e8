"""An exercise of the chapter Autoload: the check before a library is loaded.

A build for one release of PyTorch takes its other builds, such as the CPU's,
2.13.0+cpu, but no other release. This check takes whatever begins alike.

    nox -s tests -- backend/tests/judge.py -k version_check
"""


def check(built: str, installed: str) -> None:
    """Raises an ImportError that names both, unless they are one release."""
    if not installed.startswith(built):
        raise ImportError("the wrong version of PyTorch")


# expect: ok
