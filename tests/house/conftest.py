"""Tests that look at every module: these are parsed once, for all such tests in a row, and then forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.house.tree import parsed


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "trees" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("trees"))


@pytest.fixture(scope="package")
def trees() -> Iterator[None]:
    """For tests that call ``parsed`` with every module."""
    yield
    parsed.cache_clear()
