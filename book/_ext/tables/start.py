"""What book/start.md prints of other files."""

import re

from regions import ROOT

READS = ("README.md", "noxfile.py")


def commands() -> str:
    """The README's commands, which .ci/run executes as they stand."""
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(
        r"<!-- commands -->\n\n(```sh\n.*?^```$)", readme, re.M | re.S
    )
    assert found, "README.md has no fence below its comment, commands"
    return found[1]


def activate() -> str:
    """The environment that noxfile.py makes, as a reader enters it."""
    noxfile = (ROOT / "noxfile.py").read_text("utf-8")
    found = re.search(r'^SHARED = ROOT / "(.+)" / "(.+)"$', noxfile, re.M)
    assert found, "noxfile.py has no line SHARED = ROOT / ... / ..."
    return f"```sh\nsource {found[1]}/{found[2]}/bin/activate\n```"
