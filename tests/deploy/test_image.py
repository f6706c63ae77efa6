"""The images: what their Dockerfiles copy exists, and they run as nobody."""

from __future__ import annotations

import fnmatch
import re

import pytest

from tests.house.tree import ROOT, source_roots

DAEMONS, SPARK = "Dockerfile", "Dockerfile.spark"
every_image = pytest.mark.parametrize("file", [DAEMONS, SPARK])


def values(instruction: str, file: str = DAEMONS) -> list[str]:
    text = (ROOT / "deploy" / "docker" / file).read_text()
    found = re.findall(r"(?m)^([A-Z]+) (.+(?:\\\n.+)*)$", text)
    return [value for name, value in found if name == instruction]


def copied(file: str) -> list[str]:
    """Files and folders of the tree that an image is built from."""
    sources = [value.split()[:-1] for value in values("COPY", file) if not value.startswith("--from")]
    return [name for names in sources for name in names]


@every_image
def test_every_source_root_is_in_the_image(file: str) -> None:
    assert set(source_roots()) <= set(copied(file))


@every_image
def test_what_is_copied_exists_and_reaches_the_build(file: str) -> None:
    excluded, *kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert excluded == "*"
    for name in copied(file):
        assert (ROOT / name).exists(), name
        root = name.partition("/")[0]
        assert any(fnmatch.fnmatch(root, pattern.removeprefix("!")) for pattern in kept), f"{name} is ignored"


def test_all_packages_come_from_locks() -> None:
    assert [run for run in values("RUN") if "pip" in run] == []
    installer = (ROOT / "deploy" / "install").read_text()
    spark = [part for run in values("RUN", SPARK) for part in run.split("&&") if "pip install" in part]
    for line in (*re.findall(r"(?m)^pip .*install .*$", installer), *spark):
        assert "--require-hashes" in line or "--no-deps" in line, line


@every_image
def test_it_runs_as_a_user_who_is_a_number(file: str) -> None:
    assert values("USER", file) == ["10001:10001"]


def test_it_says_whether_it_is_healthy() -> None:
    (check,) = values("HEALTHCHECK")
    assert check.endswith('CMD ["eruca", "health"]')
