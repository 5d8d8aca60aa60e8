"""The tables of book/chapters/emulator.md: the device's C API."""

import ctypes
import re
from pathlib import Path
from typing import NamedTuple

from regions import ROOT
from rows import mark
from tables.common import first_sentence, table
from tables.headers import entries

READS = ("backend/device/openreg.h",)

DEVICE_HEADER = ROOT / "backend" / "device" / "openreg.h"


class DeviceCall(NamedTuple):
    names: list[str]
    meaning: str  # the comment's first sentence
    twins: list[str]  # of the CUDA runtime; empty where there is none
    differs: str


def device_calls() -> list[DeviceCall]:
    """The calls, with those together that share a comment."""
    calls = []
    for entry in entries(DEVICE_HEADER.read_text("utf-8")):
        names = re.findall(r"\b(or[A-Z]\w+)\(", "\n".join(entry.declared))
        if not names:
            continue
        said = re.fullmatch(
            r"(.+?) Twin: ([\w, ]+)\.(?: Differs: (.+)\.)?", entry.comment, re.S
        )
        assert said, f"{names[0]}: its comment ends with no twin: Twin: none."
        twins = [] if said[2] == "none" else said[2].split(", ")
        meaning = first_sentence(said[1])
        calls.append(DeviceCall(names, meaning, twins, said[3] or ""))
    return calls


def device_api(begin: str = "or") -> str:
    """Calls of the device beside their twins in the CUDA runtime."""
    body = (
        (
            ", ".join(f"`{x}`{mark(f'emulator.{x}')}" for x in call.names),
            ", ".join(f"`{twin}`" for twin in call.twins) or "none",
            call.meaning,
        )
        for call in device_calls()
        if call.names[0].startswith(begin)
    )
    return table(("Call", "CUDA twin", "What it does"), body)


def device_library() -> ctypes.CDLL:
    """The libopenreg.so that the installed package uses."""
    from torch_openreg import _C

    library = ctypes.CDLL(str(Path(_C.__file__).parent / "lib/libopenreg.so"))
    for name in ("orGetErrorName", "orGetErrorString", "orGetErrorDetail"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def device_error_names() -> list[str]:
    """The names of all codes, in order, as the library itself gives them."""
    library = device_library()
    names: list[str] = []
    while (name := library.orGetErrorName(len(names)).decode())[:2] == "or":
        names.append(name)
    return names
