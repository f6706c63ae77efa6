#!/usr/bin/env python3
"""Makes the distributions that are published, `eruca-client`, `eruca-spark` and `eruca`, from the one tree.

``python deploy/distributions.py OUT [NAME ...]`` writes the sdist and the wheel of each into the folder OUT; without
names, of all. ``--tree FOLDER NAME`` writes the tree of one instead, for other builders. What each holds is declared in
pyproject.toml ([tool.eruca.distributions]). A distribution is first a tree of its own with its own pyproject.toml; the
sdist is that tree, and the wheel is built from the unpacked sdist. Needs the packages of deploy/build.lock, and asks no
index. With ERUCA_PURE=1, and without a C compiler, the wheel of `eruca` is one of Python alone. The same tree gives the
same bytes.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomlkit

TREE = Path(__file__).resolve().parents[1]
NOT_PUBLISHED = shutil.ignore_patterns("__pycache__", "*.py[cod]", "*.so", "*.so.*", "*.pyd")
COMPILED = "broker"
"""The source root that has a part in C, which hatch_build.py compiles."""
LINK = re.compile(r"\[([^]\n]+)\]\(([^)\s]+)\)")


def whole() -> dict[str, Any]:
    """The pyproject.toml of the tree."""
    return tomllib.loads((TREE / "pyproject.toml").read_text("utf-8"))


def names() -> list[str]:
    """The distributions, each after those that it requires."""
    return [*whole()["tool"]["eruca"]["distributions"]]


def of_name(requirement: str) -> str:
    """The name of the package that a requirement is about."""
    return re.split(r"[\[<>=;~! ]", requirement)[0]


def chosen(declared: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Those of a table, in the order of ``keys``; one that is not there is an error."""
    return {key: declared[key] for key in keys}


def project_of(name: str) -> dict[str, Any]:
    """The table [project] of a distribution."""
    tree = whole()
    project, part = tree["project"], tree["tool"]["eruca"]["distributions"][name]
    version = project["version"]
    needed = {of_name(each): each for each in project["dependencies"]}
    extras = chosen(project["optional-dependencies"], part["extras"])
    for other, passed in part.get("passed_on", {}).items():
        extras |= {extra: [f"{other}[{extra}]=={version}"] for extra in passed}
    systems = part.get("systems")
    classifiers = [
        each for each in project["classifiers"] if systems is None or not each.startswith("Operating System")
    ]
    same = ("version", "requires-python", "license", "license-files", "authors", "keywords")
    made = {
        "name": name,
        "description": part.get("description", project["description"]),
        "readme": "README.md",
        **chosen(project, same),
        "classifiers": sorted([*classifiers, *(systems or []), *part.get("classifiers", [])]),
        "dependencies": [
            *(f"{other}=={version}" for other in part.get("requires", [])),
            *chosen(needed, part["dependencies"]).values(),
        ],
        "optional-dependencies": extras,
        "scripts": chosen(project["scripts"], part.get("scripts", [])),
        "entry-points": chosen(project["entry-points"], part.get("entry_points", [])),
        "urls": project.get("urls", {}),
    }
    return {key: value for key, value in made.items() if value}


def absolute(text: str, page: Path, source: str | None, version: str) -> str:
    """The text of a page whose links lead to the files of a version at ``source``.

    Without a source, a link into the repository is its words alone: nobody meets a dead one.
    """

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        if source is None:
            return words
        path = posixpath.normpath(posixpath.join(page.parent.as_posix(), target))
        return f"[{words}]({source.rstrip('/')}/blob/v{version}/{path})"

    return LINK.sub(link, text)


def readme_of(name: str) -> str:
    """The page of a distribution."""
    tree = whole()
    project, page = tree["project"], Path(tree["tool"]["eruca"]["distributions"][name]["readme"])
    text = (TREE / page).read_text("utf-8")
    return absolute(text, page, project.get("urls", {}).get("Source"), project["version"])


def stage(name: str, folder: Path) -> None:
    """Write the tree of a distribution into the new ``folder``."""
    tree = whole()
    roots = tree["tool"]["eruca"]["distributions"][name]["roots"]
    for root in roots:
        shutil.copytree(TREE / root, folder / root, ignore=NOT_PUBLISHED)
    wheel: dict[str, Any] = {"packages": [f"{root}/eruca" for root in roots]}
    if COMPILED in roots:
        shutil.copy(TREE / "hatch_build.py", folder)
        wheel["hooks"] = {"custom": {}}
    shutil.copy(TREE / "LICENSE", folder)
    (folder / "README.md").write_text(readme_of(name), "utf-8")
    declared = {
        "build-system": tree["build-system"],
        "project": project_of(name),
        "tool": {"hatch": {"build": {"targets": {"wheel": wheel}}}},
    }
    (folder / "pyproject.toml").write_text(tomlkit.dumps(declared), "utf-8")


def build(name: str, out: Path) -> None:
    """Write the sdist and the wheel of a distribution into ``out``."""
    with tempfile.TemporaryDirectory() as work:
        staged, unpacked = Path(work, "staged"), Path(work, "unpacked")
        staged.mkdir()
        stage(name, staged)
        _hatchling("sdist", staged, Path(work, "sdist"))
        (sdist,) = Path(work, "sdist").iterdir()
        with tarfile.open(sdist) as archive:
            if hasattr(tarfile, "data_filter"):  # from 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(unpacked)  # noqa: S202 - the filter is set
        (source,) = unpacked.iterdir()
        _hatchling("wheel", source, out)
        shutil.copy(sdist, out)


def _hatchling(target: str, tree: Path, out: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    ran = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"distributions: hatchling could not build the {target} of {tree.name}:\n{ran.stderr}")
    for line in ran.stderr.splitlines():
        if line.startswith("eruca:"):  # of hatch_build.py: why the native step is left out
            print(line, file=sys.stderr)


def main() -> None:
    """The program."""
    tree = sys.argv[1:2] == ["--tree"]
    arguments = sys.argv[2:] if tree else sys.argv[1:]
    if not arguments or arguments[0].startswith("-") or (tree and len(arguments) != 2):
        usage = "python deploy/distributions.py"
        sys.exit(f"usage: {usage} OUT [NAME ...]\n       {usage} --tree FOLDER NAME")
    known = names()
    if unknown := {*arguments[1:]} - {*known}:
        sys.exit(
            f"distributions: {', '.join(sorted(unknown))} is not declared in pyproject.toml, only {', '.join(known)}"
        )
    out = Path(arguments[0]).absolute()
    out.mkdir(parents=True, exist_ok=not tree)
    for name in arguments[1:] or known:
        (stage if tree else build)(name, out)


if __name__ == "__main__":
    main()
