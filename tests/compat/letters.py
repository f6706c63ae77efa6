"""Messages of every kind, sent in every way, and where they are."""

from __future__ import annotations

from typing import get_args

from tests.compat.clients import How, Letter, Seen

HOWS: tuple[How, ...] = get_args(How)


def letters(topic: str) -> list[Letter]:
    """Every field that a sender chooses, plain and at its edges."""
    return [
        Letter(topic, b"plain"),
        Letter(topic, b"tagged", tags="TagA", keys="k1"),
        Letter(
            topic, "Größe 大きさ 🥬".encode(), tags="Öl", keys="ключ 鍵", properties={"país": "España", "emoji": "🚀"}
        ),
        Letter(topic, bytes(range(256)), flag=-(2**31), properties={"a": "1", "b": " spaced  ", "c": '"{}\\'}),
        Letter(topic, b"flagged", flag=2**31 - 1, properties={"empty-looking": "\t."}),
    ]


def in_order(messages: list[Seen]) -> list[Seen]:
    return sorted(messages, key=lambda each: each.log_offset)


def place(offset_message_id: str) -> int:
    """The offset in the commit log that an id of 32 hex digits names."""
    return int(offset_message_id[16:], 16)
