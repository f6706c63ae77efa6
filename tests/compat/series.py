"""Numbered messages, and how the members of a group share queues."""

from __future__ import annotations

from typing import Any

from tests.compat.clients import Letter, Queue


def numbered(topic: str, start: int, end: int, tags: str = "") -> list[Letter]:
    return [Letter(topic, b"%d" % n, tags=tags) for n in range(start, end)]


def numbers(messages: list[Any]) -> list[int]:
    return sorted(int(each.body) for each in messages)


def split(first: Any, second: Any) -> tuple[list[Queue], list[Queue]]:
    """What two members of a group over four queues hold, once it is two each."""
    for _ in range(300):
        shares = first.assigned(2), second.assigned(2)
        if [len(share) for share in shares] == [2, 2]:
            break
    return shares
