"""Which messages a subscription wants, and how many of them a pull looks at in one go."""

from __future__ import annotations

import pytest

from eruca.broker.services.matchers import by_expression
from eruca.protocol.sql92 import compile_sql


@pytest.mark.parametrize(("parts", "reach"), [(2, 800), (40, 800), (80, 400), (400, 80), (1000, 32), (2000, 32)])
def test_the_more_an_expression_has_the_fewer_messages_are_looked_at(parts: int, reach: int) -> None:
    text = " OR ".join(f"a = {number}" for number in range(parts // 2))
    assert by_expression(compile_sql(text)).reach == reach
