"""The repository as a whole: one namespace from many roots, one lock, commands that exist, and nothing of a machine."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT, committed_files, pyproject, source_roots, text_of

# Written apart, so that this file does not hold what it forbids.
_REGISTRIES = ["pypi" + ".org", "python" + "hosted.org", "repo.maven" + ".apache.org", "repo1.maven" + ".org"]
_MACHINE_PATHS = re.compile("(?<![\\w.~$}>-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me/[a-z]+"]) + ")/")


@pytest.mark.parametrize("root", source_roots())
def test_a_source_root_holds_its_part_of_the_namespace_and_nothing_else(root: str) -> None:
    inside = {entry.name for entry in (ROOT / root).iterdir()} - {"__pycache__"}
    packages = [entry for entry in (ROOT / root / "eruca").iterdir() if entry.name != "__pycache__"]

    assert inside == {"eruca"}
    assert packages
    for package in packages:
        assert (package / "py.typed").is_file(), "a typed package says so"
        for folder in {file.parent for file in package.rglob("*.py")}:
            assert (folder / "__init__.py").is_file(), f"{folder} is a package without __init__.py"


def test_nothing_stands_at_the_root_that_a_run_has_left_there() -> None:
    """Commands such as consumerStatus write files into the folder that they run in."""
    pages = {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
    tools = {".ci", ".dockerignore", ".github", ".gitignore", "Makefile", "mkdocs.yml"}
    build = {"hatch_build.py", "pyproject.toml", "requirements.lock"}
    there = {file.parts[0] for file in committed_files()}

    assert there - pages - tools - build - {*source_roots()} == {"deploy", "docs", "tests"}


def test_no_support_of_tests_hides_a_module_of_the_standard_library() -> None:
    """A program of this folder that runs as a script finds its neighbours first."""
    hiding = [each.name for each in (ROOT / "tests/support").glob("*.py") if each.stem in sys.stdlib_module_names]

    assert hiding == []


def test_every_tool_knows_the_same_source_roots() -> None:
    tools = pyproject()["tool"]
    roots = source_roots()

    assert tools["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"{root}/eruca" for root in roots]
    assert tools["pytest"]["ini_options"]["pythonpath"] == [".", *roots]
    assert tools["mypy"]["mypy_path"] == [
        "$MYPY_CONFIG_FILE_DIR",
        *(f"$MYPY_CONFIG_FILE_DIR/{root}" for root in roots),
    ]
    assert tools["mypy"]["files"] == [*roots, "tests", "hatch_build.py", "deploy", ".ci"]
    assert set(tools["ruff"]["src"]) == {*roots, "."}
    assert set(tools["importlinter"]["root_packages"]) == {
        f"eruca.{package.name}"
        for root in roots
        for package in (ROOT / root / "eruca").iterdir()
        if package.name != "__pycache__"
    }


@pytest.mark.parametrize("command", sorted(pyproject()["project"]["scripts"]))
def test_a_console_script_leads_to_a_function(command: str) -> None:
    module, _, name = pyproject()["project"]["scripts"][command].partition(":")

    assert callable(getattr(importlib.import_module(module), name))


def test_the_lock_pins_every_requirement_with_hashes_and_names_no_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    project = pyproject()["project"]
    extras = [line for group in project["optional-dependencies"].values() for line in group]
    wanted = {re.split(r"[\[<>=;]", line)[0].strip() for line in project["dependencies"] + extras}

    assert wanted <= _pinned(lock)


@pytest.mark.parametrize(
    "file",
    [
        "deploy/docker/requirements.lock",
        "deploy/docker/spark.lock",
        "deploy/build.lock",
        ".ci/audit.lock",
        ".ci/lowest.lock",
        ".ci/site.lock",
        ".ci/wheels.lock",
    ],
)
def test_the_other_locks_do_so_too(file: str) -> None:
    assert _pinned((ROOT / file).read_text())


def _pinned(lock: str) -> set[str]:
    """The packages of a lock, each with hashes and none with an address."""
    entries = re.split(r"\n(?=\S)", lock)
    pinned = {entry.split("==")[0]: entry for entry in entries if not entry.startswith("#")}
    assert [name for name, entry in pinned.items() if "--hash=sha256:" not in entry] == []
    assert "://" not in lock
    return set(pinned)


def test_no_file_names_a_registry_or_a_place_on_somebodys_machine() -> None:
    found = []
    for file in committed_files():
        text = text_of(file) or ""
        found += [f"{file}: {host}" for host in _REGISTRIES if host in text]
        found += [f"{file}: {path}" for path in _MACHINE_PATHS.findall(text)]

    assert found == []


def _pages() -> list[Path]:
    return [file for file in committed_files() if file.suffix == ".md"]


def test_the_commands_and_links_of_every_page_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = []
    for page in _pages():
        text = (ROOT / page).read_text()
        wrong += [f"{page}: make {name}" for name in re.findall(r"`make ([a-z]+)", text) if name not in targets]
        links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
        wrong += [f"{page}: {link}" for link in links if not (ROOT / page.parent / link).exists()]

    assert targets
    assert wrong == []
