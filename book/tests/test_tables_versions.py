"""The record of releases: there, true today, and what it says when not."""

import json
from pathlib import Path
from typing import Any

import pytest

import record_versions
import releases
from rows import Row
from tables import versions, virtuals


@pytest.mark.recorded
def test_the_installed_release_is_recorded() -> None:
    row = f"| {versions.pytorch()} (installed) |"
    assert row in versions.versions_passed(), (
        "once every test but this one passes, run .ci/record_versions.py"
    )


def test_the_recorded_headers_are_the_installed_ones() -> None:
    now = versions.record()
    here = record_versions.snapshot()
    changed = record_versions.differences(now["headers"], here)
    assert [*map(list, changed)] == now["later"].get(versions.pytorch(), [])


def test_differences_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    old = record_versions.snapshot()
    old["guard"]["oldQuery"] = "bool oldQuery() const"
    del old["hooks"]["init"]
    old["generator"]["seed"] = "int seed() = 0"
    changed = record_versions.differences(old, record_versions.snapshot())
    now = versions.record() | {"later": {"9.8.7": changed}}
    monkeypatch.setattr(versions, "record", lambda: now)
    assert versions.versions_changes().splitlines()[-3:] == [
        "| hooks | `init` |  | `void init() const` |",
        "| guard | `oldQuery` | `bool oldQuery() const` |  |",
        "| generator | `seed` | `int seed() = 0` | `uint64_t seed() = 0` |",
    ]
    assert "these are others in 9.8.7:" in versions.versions_changes()


def test_a_run_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(versions.record() | {"passed": []})
    (tmp_path / "versions.json").write_text(text)
    monkeypatch.setattr(record_versions.rows, "FOLDER", tmp_path)
    places = releases.places(versions.pytorch())._replace(build=tmp_path)
    monkeypatch.setattr(releases, "places", lambda torch: places)
    (tmp_path / "proof").mkdir()
    text = '<testsuite tests="10" skipped="{}" errors="{}" failures="0"/>'
    for n, mode in enumerate(("tests", "async", "blocking")):
        for errors in 1, 0:
            with pytest.raises(SystemExit, match=r"There is no|1 tests"):
                record_versions.note_ran()
            path = tmp_path / "proof" / f"{mode}.xml"
            path.write_text(f"<a>{text.format(n, errors)}</a>")
    record_versions.note_ran()
    record_versions.note_ran()
    assert len(versions.record()["passed"]) == 1
    assert "| 10 | 0 | 9 | 8 |" in versions.versions_passed()


def test_since_claims_no_more_than_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = ["2.0.1", "2.1.0", "2.4.1", "2.10.0", "2.11.0"]
    monkeypatch.setattr(versions, "record", lambda: {"looked_at": looked})
    assert versions.since(["2.0.1", "2.1.0"]) == "2.0 or before"
    assert versions.since(["2.4.1", "2.1.0"]) == "2.1"
    assert versions.since(["2.10.0", "2.4.1"]) == "after 2.1.0, by 2.4.1"
    assert versions.since(["2.11.0"]) == "2.11"


@pytest.mark.parametrize("row", versions.MILESTONES, ids=lambda row: row.can)
def test_a_milestone_is_found_in_the_installed_release(row: Row) -> None:
    path = virtuals.include_folder().parent / row.file
    assert row.text in path.read_text()
    assert f"| {row.can} |" in versions.milestones()


def test_every_method_of_today_has_a_history() -> None:
    history = versions.record()["methods"]
    for key in virtuals.INTERFACES:
        here = {m for m, r in history[key].items() if versions.pytorch() in r}
        assert here == virtuals.methods(key).keys()


def test_a_wheels_methods_are_found(tmp_path: Path) -> None:
    """As far as it has the headers and the classes."""
    header, _ = virtuals.INTERFACES["generator"].classes[0].split()
    path = tmp_path / "include" / header
    path.parent.mkdir(parents=True)
    path.write_text("struct C10_API GeneratorImpl { virtual int seed() = 0; };")
    now: Any = {"looked_at": ["2.1.0"], "milestones": {}, "methods": {}}
    record_versions.note_looked("2.0.1", tmp_path, now)
    assert now["looked_at"] == ["2.0.1", "2.1.0"]
    assert now["methods"]["generator"]["seed"] == ["2.0.1"]
    assert now["methods"]["generator"]["get_state"] == []
    assert now["methods"]["guard"]["type"] == []
    assert not any(now["milestones"].values())
