"""Requests with odd values in every field: each is answered, none by accident, and the broker goes on."""

import random
import re
from typing import Any

import msgspec

from eruca.broker.handlers import TABLES
from eruca.protocol.header import Header
from tests.support.desk import START, Desk

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
NUMBERS = [0, 1, -1, 2, 7, 31, 65536, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), START, 2**64, "", "x", "1.5"]
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


async def test_odd_values_are_refused_or_served_but_never_crash(desk: Desk) -> None:
    seed = random.Random(20_261_121)
    desk.topic("T", 2)
    desk.topic("Bystander")
    desk.store("T", 0, 0, 1, 2)
    desk.store("Bystander", 0, 3, 4, 5)
    desk.commit("g", "T", 1, 0)
    await desk.consumer("g", "T", peer=await desk.peer(answering=lambda _: (0, b"{}")))
    for table in TABLES:
        for code, (endpoint, _) in table.handlers.items():
            for _ in range(60):
                fields, body = odd_fields(endpoint.ask, seed), seed.choice(BODIES)
                if "suspendTimeoutMillis" in fields:
                    fields["suspendTimeoutMillis"] = 0
                if fields.get("commitOrRollback") == 0:  # an undecided end has no answer
                    fields["commitOrRollback"] = 8
                answer = await desk.ask(code, fields, body, within=15)
                assert not ACCIDENT.match(answer.remark or ""), (code, fields, body, answer.remark)
    bystander = {"topic": "Bystander", "queueId": 0}
    assert (await desk.ask(30, bystander)).fields == {"offset": "3"}
    await desk.restart()
    assert (await desk.ask(30, bystander)).fields == {"offset": "3"}
