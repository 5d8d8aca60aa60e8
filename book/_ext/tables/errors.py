"""The tables of book/chapters/errors.md."""

from tables.common import of_rows
from tables.emulator import device_error_names, device_library


def quoted(text: str) -> str:
    return text if " " in text else f"`{text}`"


def device_errors() -> str:
    """Every error of the device, with its phrase from the library."""
    library, names = device_library(), device_error_names()
    return of_rows(
        "errors.codes",
        code=lambda row: str(names.index(row.key)),
        phrase=lambda row: library.orGetErrorString(
            names.index(row.key)
        ).decode(),
        twin=lambda row: quoted(row.twin),
        exception=lambda row: quoted(row.exception),
    )
