"""The tables of book/chapters/performance.md: what `nox -s bench` kept."""

from rows import recorded
from tables.common import table

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


def performance_rows() -> str:
    """Every row of the bench: the CPU's time, and what the device adds."""
    kept = recorded(PAGE)
    columns, most = kept["rows"], kept["at most"]
    rows = []
    for name, (cpu, device) in columns["auto"].items():
        ratios = [
            f"{column[name][1] / column[name][0]:.2f}"
            if column[name]
            else "no kernel"
            for column in columns.values()
        ]
        ratios[0] = f"**{ratios[0]}**"
        limit = f"{most[name]:.2f}" if name in most else ""
        ratios.insert(1, limit)
        rows.append((name, f"{cpu:.2f}", f"{device:.2f}", *ratios))
    first, *others = (f"Ratio, {name}" for name in columns)
    head = ("Work", "CPU, µs", "Device, µs", first, "At most", *others)
    return table(head, rows)


def performance_backward() -> str:
    """Rows with a backward pass, by the thread that it runs on."""
    kept = recorded(PAGE)
    rows = []
    for name, here in kept["calling thread"].items():
        there = kept["rows"]["auto"][name]
        ratios = [device / cpu for cpu, device in (there, here)]
        more = there[1] - there[0]
        rows.append((name, f"{more:.0f}", *(f"{x:.2f}" for x in ratios)))
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
