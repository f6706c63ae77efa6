"""What of a consumer's arguments cannot be, each told in one sentence."""

from __future__ import annotations

from pathlib import Path

from eruca.client.assign import Strategy
from eruca.client.checks import check_seconds, check_sharing
from eruca.client.config import check_positive
from eruca.client.consuming.process_queue import Limits
from eruca.client.errors import BadConfig


def check_options(
    *,
    pull_interval: float,
    stop_timeout: float,
    max_reconsume_times: int | None,
    orderly: bool,
    auto_commit: bool,
    broadcast: bool,
    offset_folder: str | Path | None,
    limits: Limits,
    strategy: Strategy,
    **positive: float,
) -> None:
    """Raise BadConfig for what is not allowed, alone or together; ``positive`` are those that must be above 0."""
    check_positive(**positive)
    check_seconds(0, pull_interval=pull_interval, stop_timeout=stop_timeout)
    if max_reconsume_times is not None and (not isinstance(max_reconsume_times, int) or max_reconsume_times < 0):
        raise BadConfig(
            f"max_reconsume_times={max_reconsume_times!r} is not allowed: 0 or more is expected; leave it out for "
            "RocketMQ's default, which is -1 there"
        )
    if not isinstance(limits, Limits):
        raise BadConfig(f"limits is of type {type(limits).__name__}: Limits(count=...) is expected")
    if not auto_commit and not orderly:
        raise BadConfig("auto_commit=False is for orderly consumers: add orderly=True")
    check_sharing(strategy, offset_folder, broadcast=broadcast)
