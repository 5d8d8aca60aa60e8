"""The workflow that publishes the site, read as its host reads it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import regions
import releases

PATH = regions.ROOT / ".github" / "workflows" / "site.yml"
CONF = (regions.ROOT / "book" / "conf.py").read_text()
NOXFILE = (regions.ROOT / "noxfile.py").read_text()
PYPROJECT = (regions.ROOT / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def jobs() -> Any:
    return yaml.safe_load(PATH.read_text())["jobs"]


def find(job: Any, what: str) -> Any:
    (step,) = [s for s in job["steps"] if what in s.get("uses", s.get("run"))]
    return step


def test_it_prints_with_the_command_of_the_project(jobs: Any) -> None:
    tests, smoke, docs = (
        step
        for step in jobs["print"]["steps"]
        if step.get("run", "").startswith("nox -s")
    )
    # In this order: a page says at its foot what the tests have counted.
    for step, name in (tests, "tests"), (smoke, "smoke"), (docs, "docs"):
        assert step["run"] == f"nox -s {name}"
        assert f"def {name}(session" in NOXFILE
    # Each variable is one that somebody reads.
    assert set(jobs["print"]["env"]) == {"PIP_EXTRA_INDEX_URL"}
    for name in docs["env"]:
        assert f'environ.get("{name}"' in CONF, name


def test_it_publishes_the_folder_that_was_printed(jobs: Any) -> None:
    folder = find(jobs["print"], "upload-pages-artifact")["with"]["path"]
    site = releases.places(releases.current()[0]).site
    assert Path(folder) == site.relative_to(regions.ROOT)
    publish = jobs["publish"]
    assert publish["needs"] == "print"
    assert publish["if"] == "github.ref == 'refs/heads/main'"
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    assert publish["environment"]["name"] == "github-pages"
    step = find(publish, "deploy-pages")
    assert f"steps.{step['id']}.outputs" in publish["environment"]["url"]


def test_it_uses_the_hosts_own_actions_and_names_no_other(jobs: Any) -> None:
    uses = [s["uses"] for j in jobs.values() for s in j["steps"] if "uses" in s]
    assert len(uses) == 5
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", use) for use in uses)
    assert "://" not in PATH.read_text()
    python = find(jobs["print"], "setup-python")["with"]["python-version"]
    assert f'requires-python = ">={python},' in PYPROJECT


def test_a_weekly_run_has_what_is_long_and_both_builds_of_pytorch() -> None:
    jobs = yaml.safe_load(PATH.with_name("weekly.yml").read_text())["jobs"]
    sessions = jobs["long"]["strategy"]["matrix"]["session"]
    assert sessions == ["ops", "stress", "interop"]
    assert jobs["builds"]["strategy"]["matrix"] == {"build": ["cpu", "cuda"]}
    index = jobs["builds"]["env"]["PIP_EXTRA_INDEX_URL"]
    assert "matrix.build == 'cpu' && vars.PIP_EXTRA_INDEX_URL" in index
    assert find(jobs["builds"], "version.cuda is None")
    assert find(jobs["builds"], "nox -s tests")


def test_a_pull_request_passes_the_parts_of_ci() -> None:
    check = yaml.safe_load(PATH.with_name("check.yml").read_text())
    sessions = check["jobs"]["session"]["strategy"]["matrix"]["session"]
    run = (regions.ROOT / ".ci" / "run").read_text()
    whole = {*re.findall(r"nox -s (\w+)", run), "docs"}
    assert whole <= {*sessions, "tests"}
    for name in sessions:
        assert f"def {name}(session" in NOXFILE
    tests = check["jobs"]["tests"]
    assert tests["steps"][-1]["run"] == "nox -s tests"
    for python in tests["strategy"]["matrix"]["python"]:
        assert f'"Programming Language :: Python :: {python}"' in PYPROJECT
    assert not {"pages", "id-token"} & check["permissions"].keys()


CHANGELOG = (regions.ROOT / "book" / "about" / "changelog.md").read_text()
GROUPS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_changelog_has_releases_with_groups() -> None:
    unreleased, *releases = re.findall(r"^## (.*)$", CHANGELOG, re.M)
    assert unreleased == "Unreleased"
    found = [re.fullmatch(r"(\S+) \(\d{4}-\d\d-\d\d\)", r) for r in releases]
    versions = [match[1] for match in found if match]
    assert len(versions) == len(releases)
    assert f'\nversion = "{versions[0]}"\n' in PYPROJECT
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    assert numbers == sorted(numbers, reverse=True)
    for part in re.split(r"^## .*$", CHANGELOG, flags=re.M)[2:]:
        groups = re.findall(r"^### (.*)$", part, re.M)
        assert set(groups) <= GROUPS
        assert len(groups) == len(set(groups))
        # Each line of a release is in one of its groups.
        assert not re.findall(r"^- ", part.partition("\n### ")[0], re.M)


def test_the_version_of_the_package_stands_in_one_place() -> None:
    (version,) = re.findall(r'^version = "(.*)"$', PYPROJECT, re.M)
    stands = re.compile(rf"(?<![\d.-]){re.escape(version)}(?![\d.])")
    places = ["*.toml", "*.py", ".github/**/*.yml"]
    places += ["book/*.py", "book/_ext/*.py"]
    kinds = ("CMakeLists.txt", "*.in", "*.py", "*.pyi", "*.cpp", "*.h")
    texts = regions.read((*places, *(f"backend/**/{kind}" for kind in kinds)))
    lines = [line for text in texts.values() for line in text.splitlines()]
    assert [x for x in lines if stands.search(x)] == [f'version = "{version}"']
