"""Odd values for every field and body of a request, for tests of what a server does with them.

Owns the values and the choice among them by a seed; knows no server. ``ACCIDENT`` finds the remark of an answer that
was nobody's decision: the name of an exception.
"""

import json
import random
import re
from typing import Any

import msgspec

from eruca.protocol.header import Header

TEXTS = [
    "",
    " ",
    "T",
    "g",
    "Nowhere",
    "a b",
    "../..",
    "%RETRY%g",
    "TBW102",
    "x" * 300,
    "\u0001\u0002",
    "鍵",
    "T@g",
    "-1",
]
NUMBERS = [
    0,
    1,
    -1,
    2,
    7,
    31,
    65536,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
    1_700_000_000_000,
    2**64,
    "",
    "x",
    "1.5",
]
BODIES = [
    b"",
    b"{}",
    b"{",
    b"[]",
    b"null",
    b"\x00\xff",
    b"a=b",
    b'{"groupName":7}',
    b'{"mqSet":null,"consumerGroup":"g"}',
    b"[" * 5000,
    b'{"clientID":"c","consumerDataSet":[{"groupName":"a b","subscriptionDataSet":[{"topic":"x y"}]}]}',
]
SUBSCRIPTION = {"topic": "T", "subString": "a > 1", "expressionType": "SQL92", "subVersion": 1, "tagsSet": ["a"]}
SHAPES: list[Any] = [
    {"groupName": "g", "retryMaxTimes": 3, "retryQueueNums": 1, "consumeEnable": True, "brokerId": 0},
    {"clientId": "c", "consumerGroup": "g", "mqSet": [{"brokerName": "b", "queueId": 0, "topic": "T"}]},
    {"clientId": "c", "group": "g", "subscriptionData": SUBSCRIPTION},
    {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "g", "messageModel": "X", "subscriptionDataSet": [SUBSCRIPTION]}],
        "producerDataSet": [{"groupName": "g"}],
    },
    {"counter": 1, "timestamp": 5},
    {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 0, "timestamp": 5},
            "topicConfigTable": {"T": {"perm": 6, "readQueueNums": 3, "topicName": "T", "writeQueueNums": 2}},
        },
    },
]
"""Bodies as they should be, to be spoilt."""
MISFITS: list[Any] = [None, 0, -1, 2**31, 2**70, 1.5, "", "鍵", "\0", "a" * 1000, [], {}, [None], {"a": None}, True]
ACCIDENT = re.compile(r"^(?!RemotingError)[A-Z]\w*(Error|Exception|Exit|Interrupt)\b")


def odd_fields(kind: type[Header], seed: random.Random) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if seed.random() < 0.9:
            fields[field.encode_name] = seed.choice(choices(str(field.type)))
    return fields


def choices(declared: str) -> list[Any]:
    if "int" in declared:
        return NUMBERS
    return ["true", "false", "1", ""] if "bool" in declared else TEXTS


def odd_body(seed: random.Random) -> bytes:
    """No body that a request should have: garbage, or a shape with misfits in it."""
    if seed.random() < 0.4:
        return seed.choice(BODIES)
    return json.dumps(_spoilt(seed.choice(SHAPES), seed)).encode()


def _spoilt(value: Any, seed: random.Random) -> Any:
    if seed.random() < 0.15:
        return seed.choice(MISFITS)
    if isinstance(value, dict):
        kept = {key: _spoilt(each, seed) for key, each in value.items() if seed.random() < 0.9}
        return kept if seed.random() < 0.9 else {**kept, "$ref": seed.choice(MISFITS)}
    return [_spoilt(each, seed) for each in value] if isinstance(value, list) else value
