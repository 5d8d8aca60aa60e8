"""The tables of book/chapters/storage.md."""

import io

from tables.common import of_rows


def arrival(map_location: str) -> str:
    """The device on which a tensor arrives, as `torch.load` puts it there."""
    import torch

    file = io.BytesIO()
    torch.save(torch.ones(1, device="openreg"), file)
    file.seek(0)
    where = eval(map_location, {"torch": torch})
    return str(torch.load(file, map_location=where).device)


def map_locations() -> str:
    """Where a tensor that was on openreg:0 arrives."""
    return of_rows("storage.map_locations", found=lambda r: arrival(r.where))


def survivals() -> str:
    """Which place keeps its fact through what."""
    words = {"y": "kept", "n": "-"}
    return of_rows(
        "storage.survivals", kept=lambda row: [words[x] for x in row.kept]
    )
