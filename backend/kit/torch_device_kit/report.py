"""What the doctor found, for a terminal, a program and a browser."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import torch

from torch_device_kit import answers
from torch_device_kit.doctor import (
    HAS,
    MISSING,
    WRONG,
    Report,
    Verdict,
)
from torch_device_kit.suite import TABLES

# What PyTorch adds to a message for whoever wants the whole dispatch table.
TAIL = re.compile(r" (This could be because|You are likely triggering) .*")


def short(text: str, most: int = 300) -> str:
    text = TAIL.sub("", text)
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def plain(markdown: str) -> str:
    return markdown.replace("`", "")


def summary(report: Report) -> str:
    counts = report.counts()
    told = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
    return (
        f"{report.device}: {len(report.verdicts)} rows on "
        f"{report.devices} device(s) in {report.seconds:.0f} s: {told}."
    )


def by_table(report: Report) -> Iterator[tuple[str, list[Verdict]]]:
    """The title of each table that was asked, and what came of its rows."""
    for file, title in TABLES.items():
        prefix = f"{file}."
        found = [v for v in report.verdicts if v.row.id.startswith(prefix)]
        if found:
            yield title[0].upper() + title[1:], found


def to_text(report: Report, book: str = "") -> str:
    """Every row that is not in order; what another one causes, as a list."""
    lines = []
    for title, verdicts in by_table(report):
        good = sum(verdict.state == HAS for verdict in verdicts)
        lines.append(f"{title}: {good} of {len(verdicts)}")
        follow: dict[str, list[str]] = {}
        for verdict in verdicts:
            if verdict.because:
                follow.setdefault(verdict.because, []).append(verdict.row.id)
            elif verdict.state != HAS:
                lines += told(verdict, book)
        for cause, rows in follow.items():
            lines.append(f"  missing with {cause}: {', '.join(rows)}")
    return "\n".join([*lines, summary(report)])


def told(verdict: Verdict, book: str) -> Iterator[str]:
    row = verdict.row
    needed = ", and needed" * (row.needed and verdict.state == MISSING)
    yield f"  {verdict.state}{needed}: {row.id}"
    if verdict.said:
        yield f"    you see: {short(verdict.said)}"
    if verdict.state == WRONG:
        yield f"    right is: {row.right}"
    if row.means and verdict.state == MISSING:
        yield f"    that is: {answers.one_line(plain(row.means))}"
    yield f"    read: {book}{row.link}"


def to_data(report: Report, book: str = "") -> dict[str, Any]:
    """The same as plain data, each row with its program."""
    return {
        "device": report.device,
        "package": report.package,
        "devices": report.devices,
        "torch": str(torch.__version__),
        "seconds": round(report.seconds, 1),
        "counts": report.counts(),
        "rows": [
            {
                "id": verdict.row.id,
                "what": verdict.row.what,
                "needed": verdict.row.needed,
                "state": verdict.state,
                "said": short(verdict.said, 2000),
                "right": verdict.row.right,
                "means": answers.one_line(verdict.row.means),
                "because": verdict.because,
                "program": verdict.row.use.strip(),
                "link": book + verdict.row.link,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in report.verdicts
        ],
    }


def to_json(report: Report, book: str = "") -> str:
    return json.dumps(to_data(report, book), indent=1) + "\n"


KINDS = {HAS: "has", MISSING: "missing"}  # other states are shown alike
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --good: light-dark(#17692f, #7fd694);
  --bad: light-dark(#a3201a, #ff9d94); --lack: light-dark(#7a4b00, #f0bd68); }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
td, th {{ text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-top: 1px solid #8886; overflow-wrap: anywhere; }}
th {{ font-weight: 600; width: 34%; }}
td.state {{ width: 9rem; }}
pre, code {{ font: 13px/1.45 ui-monospace, monospace; white-space: pre-wrap; }}
pre {{ background: #8882; padding: .5rem .8rem; margin: .3rem 0; }}
.has .state {{ color: var(--good); }} .missing .state {{ color: var(--lack); }}
.wrong .state {{ color: var(--bad); }}
.state {{ font-weight: 600; }}
label {{ margin-right: 1rem; }}
body:has(#only:checked) tr.has {{ display: none; }}
</style>
<h1>{title}</h1>
<p>{summary}</p>
<p><label><input type="checkbox" id="only" checked>
Show only what is not in order</label></p>
{tables}
</html>
"""


def to_html(report: Report, book: str = "") -> str:
    """One page that needs no other file; each row unfolds to its program."""
    tables = []
    for title, verdicts in by_table(report):
        good = sum(verdict.state == HAS for verdict in verdicts)
        body = "\n".join(to_row(verdict, book) for verdict in verdicts)
        count = f"{good} of {len(verdicts)}"
        tables.append(
            f"<h2>{html.escape(title)}: {count}</h2>\n<table>\n{body}\n</table>"
        )
    return PAGE.format(
        title=html.escape(f"The device {report.device}"),
        summary=html.escape(summary(report)),
        tables="\n".join(tables),
    )


def to_row(verdict: Verdict, book: str) -> str:
    row = verdict.row
    place = html.escape(book + row.link, quote=True)
    what = html.escape(plain(row.what))
    link = f'<a href="{place}">{what}</a>' if book else what
    said = html.escape(short(verdict.said))
    if verdict.because:
        said = f"with <code>{html.escape(verdict.because)}</code>"
    elif row.means and verdict.state == MISSING:
        said += f"<br>{html.escape(answers.one_line(plain(row.means)))}"
    kind = KINDS.get(verdict.state, "wrong")
    return (
        f'<tr class="{kind}"><th scope="row">{link}'
        f"<br><code>{html.escape(row.id)}</code></th>"
        f'<td class="state">{html.escape(verdict.state)}</td>'
        f"<td>{said}<details><summary>Program</summary>"
        f"<pre>{html.escape(row.use.strip())}</pre>"
        f"Right: <code>{html.escape(row.right)}</code><br>"
        f"Read: {place}</details></td></tr>"
    )
