"""Requests with odd values in every field: each is answered, none by accident, and the broker goes on."""

import random

import pytest

from eruca.broker.handlers import TABLES
from tests.support.desk import Desk
from tests.support.odd import ACCIDENT, odd_body, odd_fields


@pytest.mark.slow
async def test_odd_values_are_refused_or_served_but_never_crash(desk: Desk) -> None:
    seed = random.Random(20_261_121)
    desk.topic("T", 2)
    desk.topic("Bystander")
    desk.store("T", 0, 0, 1, 2)
    desk.store("Bystander", 0, 3, 4, 5)
    desk.commit("g", "T", 1, 0)
    await desk.consumer("g", "T", peer=await desk.peer(answering=lambda _: (0, b"{}")))
    for table in TABLES:
        for code, (endpoint, *_) in table.handlers.items():
            for _ in range(60):
                fields, body = odd_fields(endpoint.ask, seed), odd_body(seed)
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
