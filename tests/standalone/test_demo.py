"""The demonstration, from its first step to its summary, with fewer lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from eruca.standalone.demo.steps import Demonstration

pytestmark = pytest.mark.processes


@pytest.mark.slow
async def test_the_demonstration_holds() -> None:
    told = io.StringIO()
    await Demonstration(Console(file=told, width=200), count=600).run()
    assert "600 lines of Python's own sources sent" in told.getvalue()
    assert "exactly those 600, each compared" in told.getvalue()
    assert "Spark reads the interval" in told.getvalue()
    assert "Everything held: 600 messages" in told.getvalue()
