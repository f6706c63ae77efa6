"""Tests that run on both event loops: asyncio's own and uvloop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test once on each."""

    @functools.wraps(test)
    def run(*, loop_factory: Callable[[], asyncio.AbstractEventLoop], **arguments: object) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(**arguments))

    taken = inspect.signature(test)
    more = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    vars(run)["__signature__"] = taken.replace(parameters=[*taken.parameters.values(), more], return_annotation=None)
    both: Callable[..., None] = pytest.mark.parametrize("loop_factory", _LOOPS.values(), ids=_LOOPS)(run)
    return both
