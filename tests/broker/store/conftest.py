"""What the store's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eruca.broker.store import pure
from tests.support.native import STEPS, Step, name_of, using


@pytest.fixture(params=STEPS, ids=name_of, scope="session")
def step(request: pytest.FixtureRequest) -> Step:
    """Each implementation of the native step in turn."""
    return request.param


@pytest.fixture(params=STEPS, ids=name_of)
def chosen(request: pytest.FixtureRequest) -> Iterator[Step]:
    """Each implementation in turn, used by the store."""
    with using(c=request.param is not pure):
        yield request.param
