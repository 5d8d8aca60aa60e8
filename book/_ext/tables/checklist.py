"""The table of book/howto/checklist.md."""

from itertools import groupby

from rows import Row, rows
from tables.common import said, table

READS = ("book/rows/frontend.toml",)
NEEDED = {True: "yes", False: "no", "": "no"}
LOOKUPS = "[](../chapters/frontend.md#what-pytorch-looks-up-by-name)"


def of_lookup(row: Row) -> tuple[str, ...]:
    """A name in the device module, as its chapter tells it."""
    seen = said(row.without) if ": " in row.without else row.means
    return f"`{row.key}`{row.mark}", NEEDED[row.needed], seen, LOOKUPS


def of_point(row: Row) -> tuple[str, ...]:
    seen = row.told or said(row.symptom)
    if row.symptom.startswith("ends with "):
        seen = f"The process {row.symptom}."
    where = f"[]({row.code})" if row.code else "not yet"
    return row.what + row.mark, NEEDED[row.needed], seen, where


def checklist() -> str:
    """Every registration point of a backend, interface by interface."""
    found: list[tuple[str, ...]] = []
    for step, points in groupby(rows("checklist"), lambda row: row.step):
        group = list(map(of_point, points))
        if step == "Device module":
            group += map(of_lookup, rows("frontend"))
        first = f"**{step}**<br>{group[0][0]}"
        found += [(first, *group[0][1:]), *group[1:]]
    return table(("What", "Needed", "Without it", "Code"), found)
