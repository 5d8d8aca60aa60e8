"""The record of releases: there, true today, and what it says when not."""

import json
from pathlib import Path
from typing import Any

import pytest

import record_versions
from rows import Row
from tables import versions, virtuals


def test_the_installed_release_is_recorded() -> None:
    passed = [row["torch"] for row in versions.record()["passed"]]
    assert versions.pytorch() in passed, (
        "once every test but this one passes, run .ci/record_versions.py"
    )
    assert f"| {versions.pytorch()} (installed) |" in versions.versions_passed()


def test_the_recorded_headers_are_the_installed_ones() -> None:
    """Or another release is installed, and the page shows the differences."""
    if versions.record()["headers_of"] == versions.pytorch():
        assert not versions.differences(
            versions.record()["headers"], versions.snapshot()
        )
        assert "has changed none" in versions.versions_changes()


def test_differences_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    old = versions.record()
    old["headers_of"] = "1.0.0"
    old["headers"]["guard"]["oldQuery"] = "bool oldQuery() const"
    del old["headers"]["hooks"]["init"]
    old["headers"]["generator"]["seed"] = "int seed() = 0"
    monkeypatch.setattr(versions, "record", lambda: old)
    assert versions.versions_changes().splitlines()[-3:] == [
        "| generator | `seed` | `int seed() = 0` | `uint64_t seed() = 0` |",
        "| guard | `oldQuery` | `bool oldQuery() const` |  |",
        "| hooks | `init` |  | `void init() const` |",
    ]
    assert "these are others in " in versions.versions_changes()


def test_a_run_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "versions.json"
    path.write_text(json.dumps(versions.record() | {"passed": []}))
    monkeypatch.setattr(record_versions.rows, "FOLDER", tmp_path)
    record_versions.note_passed()
    record_versions.note_passed()
    (entry,) = versions.record()["passed"]
    assert entry["torch"] == versions.pytorch()
    assert versions.record()["headers"] == versions.snapshot()


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
        assert history[key].keys() == virtuals.methods(key).keys()
        assert all(versions.pytorch() in r for r in history[key].values())


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
