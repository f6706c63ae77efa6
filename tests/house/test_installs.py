"""What texts say about installing: each distribution and extra that a text names exists, and is the nearest one.

A program that has ``eruca-spark`` alone is not sent to ``eruca``, which brings servers. So the product's code names an
extra by the distribution whose own it is, and no text names the extra of Spark by another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.house.tree import committed_files, pyproject, text_of

DISTRIBUTIONS = pyproject()["tool"]["eruca"]["distributions"]
OWN = {name: {*made["extras"]} for name, made in DISTRIBUTIONS.items()}
PASSED_ON = {
    name: {extra for extras in made.get("passed_on", {}).values() for extra in extras}
    for name, made in DISTRIBUTIONS.items()
}
ROOTS = {root for made in DISTRIBUTIONS.values() for root in made["roots"]}
TEXTS = {".md", ".py", ".yaml", ".yml", ".conf", ""}
_NAMED = re.compile(r"\b(eruca(?:-[a-z]+)*)\[([a-z][a-z, ]*)\]")
_INSTALLED = re.compile(r"pip install (?:-[-a-zA-Z]+ )*['\"]?(eruca[-a-z]*)")


def named() -> Iterator[tuple[str, str, str]]:
    """Each extra that a text names: the file, the distribution, and the extra."""
    for file in committed_files():
        if file.suffix in TEXTS and file.parts[0] != "tests" and file.name != "CHANGELOG.md":
            for name, extras in _NAMED.findall(text_of(file) or ""):
                yield from ((str(file), name, extra) for extra in re.split(", *", extras))


def test_each_extra_that_a_text_names_exists() -> None:
    wrong = [each for each in named() if each[2] not in OWN.get(each[1], set()) | PASSED_ON.get(each[1], set())]

    assert wrong == []


def test_code_names_the_distribution_whose_own_the_extra_is() -> None:
    wrong = [
        (file, name, extra) for file, name, extra in named() if file.split("/")[0] in ROOTS and extra not in OWN[name]
    ]

    assert wrong == []


def test_no_text_names_the_extra_of_spark_by_the_distribution_with_the_servers() -> None:
    assert [file for file, name, extra in named() if (name, extra) == ("eruca", "spark")] == []


def test_each_distribution_that_a_text_has_installed_exists() -> None:
    found = {
        name for file in committed_files() if file.suffix in TEXTS for name in _INSTALLED.findall(text_of(file) or "")
    }

    assert found == {*DISTRIBUTIONS}
