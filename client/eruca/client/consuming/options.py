"""What of a consumer's arguments cannot be, each told in one sentence."""

from __future__ import annotations

from pathlib import Path

from eruca.client.config import check_positive
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
    **positive: float,
) -> None:
    """Raise BadConfig for what is not allowed, alone or together; ``positive`` are those that must be above 0."""
    check_positive(**positive)
    for name, seconds in (("pull_interval", pull_interval), ("stop_timeout", stop_timeout)):
        if not seconds >= 0:
            raise BadConfig(f"{name}={seconds} is not allowed: 0 or more seconds are expected")
    if max_reconsume_times is not None and max_reconsume_times < 0:
        raise BadConfig(
            f"max_reconsume_times={max_reconsume_times} is not allowed: 0 or more is expected; leave it out for "
            "RocketMQ's default, which is -1 there"
        )
    if not auto_commit and not orderly:
        raise BadConfig("auto_commit=False is for orderly consumers: add orderly=True")
    if offset_folder is not None and not broadcast:
        raise BadConfig("offset_folder is for consumers that get everything: add broadcast=True")
