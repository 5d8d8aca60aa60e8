"""The workflow that publishes the site, read as its host reads it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import regions

PATH = regions.ROOT / ".github" / "workflows" / "site.yml"
CONF = (regions.ROOT / "book" / "conf.py").read_text()
NOXFILE = (regions.ROOT / "noxfile.py").read_text()


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    return yaml.safe_load(PATH.read_text())["jobs"]


def find(job: dict[str, Any], what: str) -> dict[str, Any]:
    (step,) = [s for s in job["steps"] if what in s.get("uses", s.get("run"))]
    return step


def test_it_prints_with_the_command_of_the_project(jobs: dict) -> None:
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


def test_it_publishes_the_folder_that_was_printed(jobs: dict) -> None:
    folder = find(jobs["print"], "upload-pages-artifact")["with"]["path"]
    (site,) = re.findall(r"^SITE = ROOT / (.*)$", NOXFILE, re.M)
    assert Path(folder) == Path(*re.findall(r'"(\w+)"', site))
    publish = jobs["publish"]
    assert publish["needs"] == "print"
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    assert publish["environment"]["name"] == "github-pages"
    step = find(publish, "deploy-pages")
    assert f"steps.{step['id']}.outputs" in publish["environment"]["url"]


def test_it_uses_the_host_s_own_actions_and_names_no_other_host(
    jobs: dict,
) -> None:
    uses = [
        s["uses"] for job in jobs.values() for s in job["steps"] if "uses" in s
    ]
    assert len(uses) == 5
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", use) for use in uses)
    assert "://" not in PATH.read_text()
    python = find(jobs["print"], "setup-python")["with"]["python-version"]
    assert (
        f'requires-python = ">={python},'
        in (regions.ROOT / "pyproject.toml").read_text()
    )


def test_a_weekly_run_tests_both_builds_of_pytorch() -> None:
    weekly = yaml.safe_load(PATH.with_name("weekly.yml").read_text())
    (job,) = weekly["jobs"].values()
    assert job["strategy"]["matrix"] == {"build": ["cpu", "cuda"]}
    index = job["env"]["PIP_EXTRA_INDEX_URL"]
    assert "matrix.build == 'cpu' && vars.PIP_EXTRA_INDEX_URL" in index
    assert find(job, "version.cuda is None")
    assert job["steps"][-1]["run"] == "nox -s tests"


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
    pyproject = (regions.ROOT / "pyproject.toml").read_text()
    for python in tests["strategy"]["matrix"]["python"]:
        assert f'"Programming Language :: Python :: {python}"' in pyproject
    assert not {"pages", "id-token"} & check["permissions"].keys()
