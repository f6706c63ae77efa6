"""Pulls as a client asks for them, by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eruca.protocol.record import decode_records
from tests.support.desk import Desk
from tests.support.peers import Answered

PULL, LITE, SEND_V2 = 11, 361, 310


COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


def pull(offset: int = 0, flags: int = SUBSCRIPTION, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": flags,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15000,
        "subVersion": 7,
        "subscription": "*",
    }
    return {**fields, **more}


def bodies(answer: Answered) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


def place(answer: Answered) -> tuple[int, str | None, str, str, str]:
    fields = answer.fields
    assert fields["suggestWhichBrokerId"] == "0"
    return answer.code, answer.remark, fields["nextBeginOffset"], fields["minOffset"], fields["maxOffset"]
