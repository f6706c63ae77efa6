"""What a pipeline reports while it runs. Knows neither a terminal nor Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a pipeline is: ``done`` of ``total`` (None: not known) in the step ``step``, which says what they are."""

    step: str
    done: int
    total: int | None = None


ProgressListener = Callable[[Progress], None]
"""Called now and then while a pipeline runs."""


def ignore_progress(progress: Progress) -> None:
    """The listener of pipelines that nobody watches."""
