"""The image: what its Dockerfile copies exists, and it runs as nobody."""

from __future__ import annotations

import fnmatch
import re

from tests.house.tree import ROOT, source_roots

TEXT = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
INSTRUCTIONS = re.findall(r"(?m)^([A-Z]+) (.+(?:\\\n.+)*)$", TEXT)


def values(instruction: str) -> list[str]:
    return [value for name, value in INSTRUCTIONS if name == instruction]


def copied() -> list[str]:
    """Files and folders of the tree that the image is built from."""
    sources = [value.split()[:-1] for value in values("COPY") if not value.startswith("--from")]
    return [name for names in sources for name in names]


def test_every_source_root_is_in_the_image() -> None:
    assert set(source_roots()) <= set(copied())


def test_what_is_copied_exists_and_reaches_the_build() -> None:
    excluded, *kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert excluded == "*"
    for name in copied():
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, pattern.removeprefix("!")) for pattern in kept), f"{name} is ignored"


def test_all_packages_come_from_locks() -> None:
    assert [run for run in values("RUN") if "pip" in run] == []
    installer = (ROOT / "deploy" / "install").read_text()
    for line in re.findall(r"(?m)^pip .*install .*$", installer):
        assert "--require-hashes" in line or "--no-deps" in line, line


def test_it_runs_as_a_user_who_is_a_number() -> None:
    assert values("USER") == ["10001:10001"]


def test_it_says_whether_it_is_healthy() -> None:
    (check,) = values("HEALTHCHECK")
    assert check.endswith('CMD ["eruca", "health"]')
