"""A session of single requests, whichever side answers: what is asked, what of the answers is comparable.

Owns the order of the requests and the state they find: two topics, known messages in known queues, groups with known
offsets, one member that answers for itself. Times, addresses and ids are masked; everything else is compared by value:
code, remark, header fields, and the body as plain values.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from eruca.protocol import fastjson
from eruca.protocol.errors import ProtocolError
from eruca.protocol.record import Record, decode_records
from tests.support.peers import Answered, Peer, Pushed

CLUSTER, BROKER, TOPIC = "JudgeCluster", "broker-a", "Asked"
BORN = 1_700_000_000_000
EVER = 2 * BORN
MEMBER = "10.0.0.1@member"
MESSAGES = 10

_RUNNING = (
    b'{"mqTable":{},"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"},"statusTable":{},"subscriptionSet":[]}'
)
_CONSUMED = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
_HELD = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"Asked"}:4}}'
_OF_THE_MOMENT = frozenset({"consumeTps", "delayTime"})
_MASKS = (
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+:\d+\b"), "HOST"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d[:,.]\d{3}"), "TIME"),
)


class Said(NamedTuple):
    """An answer, comparable; no code where there was no answer."""

    code: int | None
    remark: str | None = None
    fields: dict[str, str] | None = None
    body: Any = None
    by: tuple[str, int] | None = None


class Ask(NamedTuple):
    """One request; ``name`` says what is special about it."""

    code: int
    name: str = ""
    fields: dict[str, Any] | None = None
    body: bytes = b""

    @property
    def label(self) -> str:
        return f"{self.code} {self.name}".rstrip()


def said(answer: Answered) -> Said:
    """What an answer says, without what differs from run to run."""
    by = answer.header["language"], answer.header["version"]
    relayed = by if by[0] not in ("JAVA", "PYTHON") else None
    fields = {name: masked(value) for name, value in answer.fields.items()}
    return Said(answer.code, masked(answer.remark), fields, _body(answer.body), relayed)


def masked(value: Any) -> Any:
    """Any value with its times, addresses and ids replaced; lists in one order."""
    match value:
        case str():
            for pattern, word in _MASKS:
                value = pattern.sub(word, value)
            return value
        case int() if 1_500_000_000_000 < value < 2_000_000_000_000:
            return "TIME"
        case dict():
            return {masked(key): masked(each) for key, each in value.items() if key not in _OF_THE_MOMENT}
        case list():
            return sorted((masked(each) for each in value), key=repr)
    return value


def _body(body: bytes) -> Any:
    if not body:
        return None
    if body[:1] in b"{[":
        return masked(fastjson.loads(body))
    try:
        return [_record(record) for record in decode_records(body)]
    except ProtocolError:
        return masked(body.decode())


def _record(record: Record) -> Any:
    place = record.topic, record.queue_id, record.queue_offset, record.physical_offset
    return masked([*place, record.sys_flag, record.flag, record.body.decode(), dict(record.properties)])


def answering(pushed: Pushed) -> tuple[int, bytes] | None:
    """What the member answers to 221, 307 and 309."""
    answers = {221: _HELD, 307: _RUNNING, 309: _CONSUMED}
    return (0, answers[pushed.code]) if pushed.code in answers else None


# ---------------------------------------------------------------------- what is sent


def sent(number: int = 1, **more: Any) -> dict[str, Any]:
    """The header of a send (310) of the message with that number."""
    properties = {"KEYS": f"key-{number}", "TAGS": f"Tag{number % 2}", "UNIQ_KEY": f"{number:032X}", "WAIT": "true"}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    place = {"a": "askers", "b": TOPIC, "c": "TBW102", "d": 4, "e": number % 2}
    return {**place, "f": 0, "g": BORN + number, "h": 0, "i": text, "j": 0, "k": "false", "m": "false", **more}


def heartbeat() -> bytes:
    """The member's heartbeat: of the group ``keepers``, and of the producers ``askers``."""
    subscription = {"classFilterMode": False, "codeSet": [2598919], "expressionType": "TAG", "subString": "Tag1"}
    group = {
        "groupName": "keepers",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{**subscription, "subVersion": 7, "tagsSet": ["Tag1"], "topic": TOPIC}],
    }
    beat = {"clientID": MEMBER, "consumerDataSet": [group], "producerDataSet": [{"groupName": "askers"}]}
    return json.dumps(beat).encode()


def new_topic(topic: str, queues: int = 1, **more: Any) -> dict[str, Any]:
    """The header of 17."""
    sizes = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        **sizes,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        **more,
    }


def pull(**more: Any) -> dict[str, Any]:
    """The header of 11, with a subscription in it."""
    place = {"consumerGroup": "keepers", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
    how = {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0}
    return {**place, **how, "subscription": "*", "expressionType": "TAG", **more}


class Session:
    """What was answered so far, by label, and the ids of the messages that were sent."""

    def __init__(self) -> None:
        self.answers: dict[str, Said] = {}
        self.ids: list[str] = []

    async def ask(self, peer: Peer, ask: Ask, within: float = 15.0) -> Answered:
        assert ask.label not in self.answers, f"asked twice: {ask.label}"
        answer = await peer.ask(ask.code, ask.fields, ask.body, within=within)
        self.answers[ask.label] = said(answer)
        return answer
