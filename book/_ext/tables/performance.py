"""The tables of book/chapters/performance.md: what `nox -s bench` kept."""

from math import log2

from rows import recorded
from tables.common import drawing, table

READS = ("book/rows/performance.json",)

# The file has the figures of the last `nox -s bench -- --record`.
PAGE = "performance"


def performance_source() -> str:
    """When, where and with what the figures were taken."""
    kept = recorded(PAGE)
    return (
        f"Measured on {kept['date']} with torch {kept['torch']}, "
        f"on {kept['cpu']}."
    )


def ratio(times: list[float] | None) -> str:
    return f"{times[1] / times[0]:.2f}" if times else "no kernel"


def performance_rows() -> str:
    """Every row of the bench: the CPU's time, and what the device adds."""
    kept = recorded(PAGE)
    columns, most, rows = kept["rows"], kept["at most"], []
    for name, both in columns["auto"].items():
        times = (f"{time:.2f}" for time in both)
        first, *others = (ratio(column[name]) for column in columns.values())
        limit = f"{most[name]:.2f}" if name in most else ""
        rows.append((name, *times, f"**{first}**", limit, *others))
    first, *others = (f"Ratio, {name}" for name in columns)
    head = ("Work", "CPU, µs", "Device, µs", first, "At most", *others)
    return table(head, rows)


# What is drawn for each column: a diamond, a square, a cross.
MARKS = "m-5 0 5-5 5 5-5 5z", "m-4-4h8v8h-8z", "m-4-4 8 8m0-8-8 8"


def performance_drawing() -> str:
    """A line for each row of the bench, with its ratios from 1/16 to 16."""
    columns, text, label = recorded(PAGE)["rows"], [], []
    end = 24 + 18 * len(columns["auto"])
    for i, word in enumerate(("1/16", "1/4", "1", "4", "16")):
        x = 174 + 46 * i
        text.append(f'<path d="M{x} 20V{end}"/>')
        text.append(f'<text class="mid" x="{x}" y="14">{word}</text>')
    for i, (column, mark) in enumerate(zip(columns, MARKS, strict=True)):
        for row, (name, times) in enumerate(columns[column].items()):
            y = 34 + 18 * row
            label.append(f"{name}, {column}: {ratio(times)}")
            if times:
                x = round(266 + 23 * log2(times[1] / times[0]))
                text.append(f'<path class="way-{i}" d="M{x} {y}{mark}"/>')
            if i == 0:
                text.append(f'<text x="4" y="{y + 5}">{name}</text>')
        x, y = 24 + 90 * i, end + 20
        text.append(f'<path class="way-{i}" d="M{x} {y}{mark}"/>')
        text.append(f'<text x="{x + 9}" y="{y + 5}">{column}</text>')
    return drawing("; ".join(label) + ".", end + 32, text)


def performance_backward() -> str:
    """Rows with a backward pass, by the thread that it runs on."""
    kept = recorded(PAGE)
    rows = []
    for name, here in kept["calling thread"].items():
        there = kept["rows"]["auto"][name]
        more = there[1] - there[0]
        rows.append((name, f"{more:.0f}", ratio(there), ratio(here)))
    head = ("Work", "More than the CPU, µs", "Ratio")
    return table((*head, "Ratio, backward on the calling thread"), rows)


def performance_pairs(asked: str) -> str:
    """What the same takes in two ways, which each row names."""
    rows = []
    for name, times in recorded(PAGE)[asked].items():
        work, _, ways = name.partition(": ")
        one, other = ways.split(", ")
        taken = (f"{time:.0f} µs" for time in times)
        ratio = f"{times[0] / times[1]:.2f}"
        rows.append((work, one, next(taken), other, next(taken), ratio))
    head = ("Work", "One way", "takes", "Another", "takes", "One over other")
    return table(head, rows)


def performance_profile() -> str:
    """What an `add_` of one element takes beside each kind of profile."""
    kept = recorded(PAGE)["profile"]
    return table(kept, [[f"{taken:.2f} µs" for taken in kept.values()]])


def performance_threads() -> str:
    """Training steps with two threads, by where backward runs."""
    kept = recorded(PAGE)["two threads"]
    rows = []
    for name in next(iter(kept.values())):
        steps = [steps[name] for steps in kept.values()]
        cells = [f"{device:.0f} ({cpu:.0f})" for cpu, device in steps]
        rows.append((name, *cells))
    return table(("Step", *(f"backward on {x}, µs" for x in kept)), rows)


def performance_rest() -> str:
    """What is no operator: memory, the pool, overlap, import."""
    kept = recorded(PAGE)
    host, device = kept["memory"]
    bare, loaded = kept["import"]
    small, small_cpu = kept["allocation"]["4096"]
    rows = {
        "Peak memory of a transformer step": (
            f"{device / host:.2f} of the CPU's {host:,} bytes"
        ),
        "Allocate 4 KiB from the cache and free it, in C++": (
            f"{small:.0f} ns; the CPU's allocator {small_cpu:.0f} ns"
        ),
        "`import torch`": f"{bare:.0f} ms",
        "`import torch` with the backend": f"{loaded:.0f} ms",
    }
    for name, (together, in_order) in kept["overlap"].items():
        cost = f"{together:.0f} ms; ordered by an event {in_order:.0f} ms"
        rows[f"On two streams in `async`: {name}"] = cost
    return table(("What", "Cost"), rows.items())
