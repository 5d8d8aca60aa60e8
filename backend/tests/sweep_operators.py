"""All of PyTorch's operator database, on the device and on the CPU.

`nox -s ops` runs this: the conformance kit of backend/kit, which also says what
its arguments mean, with questions of our own. What is not as on the CPU is
declared in book/rows/operators_known.toml.
"""

from __future__ import annotations

import os

# A backend is loaded by processes that are forked for it, not by this one.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import argparse
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kit"))

import _probes
import sweep_compiled
from torch_device_kit.conformance import command, database, groups
from torch_device_kit.conformance.groups import Group

ROOT = Path(__file__).parents[2]
KNOWN = ROOT / "book" / "rows" / "operators_known.toml"


def group(kinds: list[str], dtypes: list[str], check: groups.Check) -> Group:
    return Group(
        dict.fromkeys(kinds, "complete"),
        dict.fromkeys(dtypes, "complete"),
        partial(database.questions, kinds, dtypes),
        check,
    )


PROBED = group(list(_probes.PROBES), list(database.DTYPES), _probes.check)
COMPILED = group(
    sweep_compiled.KINDS, sweep_compiled.DTYPES, sweep_compiled.check
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nox -s ops --")
    command.add_choices(parser)
    parser.add_argument(
        "--ends", action="store_true", help="look for ends of the process"
    )
    parser.add_argument(
        "--compiled", action="store_true", help="by torch.compile, and eager"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the counts of all compiled answers for the book",
    )
    ours = {"device": "openreg", "package": "torch_openreg", "known": KNOWN}
    parser.set_defaults(**ours, answers=ROOT / "build" / "ops")
    if "--compiled" in sys.argv:
        parser.set_defaults(samples=1)
    return parser.parse_args()


def compare_compiled(chosen: argparse.Namespace) -> int:
    """Compiled calls beside those of eager mode; what differs on the CPU, too,
    is no fault."""
    questions = command.choose(chosen, [COMPILED])
    declared = sweep_compiled.DECLARED
    answers = command.answer(chosen, [COMPILED], questions, declared)
    if chosen.record:
        sweep_compiled.record(answers)
    asked = {question: answers[question] for question in questions}
    wrong = sweep_compiled.report(asked)
    stale = command.tell_stale(chosen, [COMPILED], asked, declared)
    return int(wrong > 0 or stale)


def main() -> int:
    chosen = parse()
    if chosen.ends:
        import sweep_ends  # which loads the backend

        return sweep_ends.main((chosen.names or ["*"])[0])
    if chosen.compiled:
        return compare_compiled(chosen)
    kit = groups.every(chosen.device, chosen.package)
    return command.conform(chosen, [*kit, PROBED])


if __name__ == "__main__":
    sys.exit(main())
