"""Both implementations of the native step, for tests that hold for each or compare them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eruca.broker.store import native, pure

Step = Any
"""A module with the functions that ``native`` chooses from."""

STEPS: list[Step] = [pure]
if native.compiled:
    from eruca.broker.store import _native

    STEPS.append(_native)


def name_of(step: Step) -> str:
    """How a test's id names an implementation."""
    return "pure" if step is pure else "native"


@contextmanager
def using(*, c: bool) -> Iterator[None]:
    """Let the store use the functions in C, where they are compiled, or those in Python."""
    before = native.on
    native.use(c=c and native.compiled)
    try:
        yield
    finally:
        native.use(c=before)
