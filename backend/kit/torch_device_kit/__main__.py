"""python -m torch_device_kit doctor, conform or compare: see `--help`."""

from __future__ import annotations

import os

# A backend is loaded by processes that are forked for it, not by this one.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import argparse
import sys
from pathlib import Path

from torch_device_kit import doctor, report
from torch_device_kit.conformance import command


def parse(arguments: list[str] | None) -> argparse.Namespace:
    backend = argparse.ArgumentParser(add_help=False)
    backend.add_argument(
        "--device", required=True, help="its name, such as npu"
    )
    backend.add_argument(
        "--import",
        required=True,
        dest="package",
        help="what brings the device when it is imported, such as torch_npu",
    )
    parser = argparse.ArgumentParser(prog="torch_device_kit")
    commands = parser.add_subparsers(dest="command", required=True)
    asks = commands.add_parser("doctor", description=HELP, parents=[backend])
    asks.add_argument(
        "--only",
        default="*",
        help="patterns for rows, with commas between: guard.*,hooks.high.*",
    )
    asks.add_argument(
        "--quick",
        action="store_true",
        help="leave out the rows that import torch.compile or PyTorch's tests",
    )
    asks.add_argument(
        "--patience",
        type=float,
        default=60,
        help="seconds after which a row hangs (60)",
    )
    asks.add_argument("--json", type=Path, help="a file for all that was found")
    asks.add_argument("--html", type=Path, help="a file for a page of it")
    asks.add_argument(
        "--book",
        default="",
        help="the address of the book, such as file:///.../html/, for links",
    )
    asks.set_defaults(run=examine)
    command.add_parsers(commands, backend)
    return parser.parse_args(arguments)


HELP = """\
Says what a PrivateUse1 device has, lacks and gets wrong. The exit status is 0
if all is in order, 1 if not, 2 if there is no such device."""


def examine(chosen: argparse.Namespace) -> int:
    book = chosen.book.rstrip("/") + "/" if chosen.book else ""
    found = doctor.examine(
        chosen.device,
        chosen.package,
        chosen.only,
        chosen.quick,
        chosen.patience,
    )
    if chosen.json:
        chosen.json.write_text(report.to_json(found, book), "utf-8")
    if chosen.html:
        chosen.html.write_text(report.to_html(found, book), "utf-8")
    print(report.to_text(found, book))
    return int(found.counts()[doctor.HAS] < len(found.verdicts))


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(arguments)
    try:
        return int(chosen.run(chosen))
    except doctor.CannotBegin as error:
        print(f"torch_device_kit: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
