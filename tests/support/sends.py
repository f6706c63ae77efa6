"""Fields of a send by hand."""

from __future__ import annotations

from tests.support.desk import START

LONG = dict(
    zip(
        "abcdefghijklm",
        (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
            *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch"),
        ),
        strict=True,
    )
)


TEXT = "TAGS\x01TagA\x02UNIQ_KEY\x01AC11\x02WAIT\x01true"


def message(topic: str = "T", queue_id: int = 0, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": START,
        "h": 0,
    }
    return {**fields, "i": TEXT, "j": 0, "k": "false", "m": "false", **more}
