"""Half messages and their ends as a client sends them, by hand."""

from __future__ import annotations

from tests.support.desk import Desk
from tests.support.peers import Answered
from tests.support.sends import message

SEND, END, CHECK, RESUME = 310, 37, 39, 323


COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


def half(key: str = "AC11", *more: str, **fields: object) -> dict[str, object]:
    properties = ["TRAN_MSG\x01true", f"UNIQ_KEY\x01{key}", "PGROUP\x01PG", "WAIT\x01true", "TAGS\x01TagT", *more]
    return message(**{"f": 4, "i": "\x02".join(properties), **fields})  # type: ignore[arg-type]


async def send(desk: Desk, key: str = "AC11", *more: str, body: bytes = b"half") -> dict[str, object]:
    """Send a half message; what ends it."""
    desk.topic("T")
    answer = await desk.ask(SEND, half(key, *more), body)
    assert answer.code == 0, answer.remark
    return place(answer)


def place(answer: Answered) -> dict[str, object]:
    return {
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": int(answer.fields["msgId"][16:], 16),
    }


async def end(desk: Desk, where: dict[str, object], state: int, **more: object) -> Answered:
    fields = {"producerGroup": "PG", "msgId": "AC11", "fromTransactionCheck": "false", "commitOrRollback": state}
    return await desk.ask(END, {**fields, **where, **more})
