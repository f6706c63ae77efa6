"""The demonstration, from its first step to its summary, with fewer lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from eruca.standalone.demo.steps import Demonstration

pytestmark = pytest.mark.processes


@pytest.mark.slow
async def test_the_demonstration_holds(quick_java: None) -> None:
    printed = io.StringIO()
    await Demonstration(Console(file=printed, width=200), count=600).run()
    assert "send 600 lines of Python's sources" in printed.getvalue()
    assert "exactly 600 messages, each compared" in printed.getvalue()
    assert "read the interval of the second half with Spark" in printed.getvalue()
    assert "All checks passed: 600 messages" in printed.getvalue()
