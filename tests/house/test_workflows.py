"""The workflows of a forge, as far as they can be checked here: what they run exists."""

from __future__ import annotations

import importlib.util
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.house.tree import ROOT, pyproject

TOOLS = (ROOT / ".ci/wheels.in").read_text().split()
"""What the workflows install to make wheels."""
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def commands(job: dict[str, object]) -> list[list[str]]:
    steps = job["steps"]
    assert isinstance(steps, list)
    return [shlex.split(step["run"]) for step in steps if "run" in step]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_a_workflow_runs_exists(file: Path) -> None:
    scripts, extras = pyproject()["project"]["scripts"], pyproject()["project"]["optional-dependencies"]
    for job in yaml.safe_load(file.read_text())["jobs"].values():
        for command, *arguments in commands(job):
            if command != "python":
                assert command in scripts
                continue
            if arguments[0] != "-m":
                assert (ROOT / arguments[0]).is_file(), arguments
                continue
            assert importlib.util.find_spec(arguments[1]) or arguments[1] in TOOLS, arguments
            for argument in arguments[2:]:
                if argument.startswith(("tests/", "deploy/", ".ci/")):
                    assert (ROOT / argument).exists(), argument
                if argument.startswith(".["):
                    assert set(argument[2:-1].split(",")) <= set(extras), argument


def test_every_system_and_python_has_a_job() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/systems.yml").read_text())["jobs"].values()
    matrix = job["strategy"]["matrix"]

    assert [each.partition("-")[0] for each in matrix["system"]] == ["ubuntu", "windows", "macos"]
    pythons = [each.rpartition(" ")[2] for each in pyproject()["project"]["classifiers"] if "Python :: 3." in each]
    assert matrix["python"] == pythons


def test_every_python_has_its_wheels() -> None:
    settings = tomllib.loads((ROOT / "deploy/cibuildwheel.toml").read_text())["tool"]["cibuildwheel"]
    pythons = [each.rpartition(" ")[2] for each in pyproject()["project"]["classifiers"] if "Python :: 3." in each]

    assert settings["build"].split()[: len(pythons)] == [f"cp{each.replace('.', '')}-*" for each in pythons]
    assert {*settings["test-extras"]} <= {*pyproject()["project"]["optional-dependencies"]}
