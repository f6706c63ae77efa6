"""Request-reply between Apache's Java clients, on Apache's broker as the measure and on Eruca's.

A 5.3.3 client answers, and asks by the form that is called back. Its synchronous ``request`` is not judged: from 5.3.1
on it stops waiting when the send is acknowledged (``acquireCountDownLatch``; apache/rocketmq issues 9292 and 9319) and
tells of a time-out, whichever broker it asks, unless the answer came even before that.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from eruca.client import RPC, Message, Producer
from eruca.client.errors import RemoteError
from tests.compat.clients import JavaClients, PythonClients, drain
from tests.compat.conftest import Cluster
from tests.support.java import Judge, JudgeError

MakeTopic = Callable[[Cluster, Judge, int], str]


def asked(topic: str, text: str) -> dict[str, Any]:
    return {"topic": topic, "body": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize("repeat", [1, 2000], ids=["short", "compressed"])
def test_a_request_is_answered(
    cluster: Cluster, judge: Judge, repeat: int, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, replier, asker = topic(cluster, judge, 2), fresh("replier"), fresh("asker")
    address = cluster.address
    judge.call("replier", name=replier, group=fresh("repliers"), namesrv=address, topics={name: "*"}, repeat=repeat)
    client_id = judge.call("producer", name=asker, group=fresh("askers"), namesrv=address)
    try:
        # The first request of a client is also the one that makes it known to the broker.
        answers = [judge.call("request", name=asker, message=asked(name, "question 0"))]
        calls: list[Future[Any]] = [
            judge.begin("request", name=asker, message=asked(name, f"question {n}")) for n in range(1, 20)
        ]
        answers += [call.result(60) for call in calls]
    finally:
        judge.call("stop", name=asker)
        judge.call("stop", name=replier)

    for n, answer in enumerate(answers):
        assert base64.b64decode(answer["body"]).decode() == f"re: question {n}" * repeat
        properties, before = answer["properties"], answer["asked"]
        assert properties["CORRELATION_ID"] == before["CORRELATION_ID"]
        assert properties["REPLY_TO_CLIENT"] == before["REPLY_TO_CLIENT"] == client_id
        assert properties["MSG_TYPE"] == "reply"
        assert int(properties["PUSH_REPLY_TIME"]) > 0
    with JavaClients(judge).puller(fresh("readers"), cluster.address) as puller:
        kept = drain(puller, "JudgeCluster_REPLY_TOPIC")
    ids = {answer["asked"]["CORRELATION_ID"] for answer in answers}
    assert len([each for each in kept if each.properties["CORRELATION_ID"] in ids]) == 20


def test_a_request_without_an_answer_ends(
    cluster: Cluster, judge: Judge, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, asker = topic(cluster, judge, 1), fresh("asker")
    judge.call("producer", name=asker, group=fresh("askers"), namesrv=cluster.address)
    try:
        with pytest.raises(JudgeError) as refused:
            judge.call("request", name=asker, message=asked(name, "anybody?"), timeoutMs=500)
    finally:
        judge.call("stop", name=asker)

    assert refused.value.type == "RequestTimeoutException"


def test_clients_of_both_generations_ask_and_answer(
    cluster: Cluster, judge: Judge, judge5: Judge, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    for asking, answering, how in ((judge, judge5, {}), (judge5, judge, {"callback": True})):
        name, replier, asker = topic(cluster, judge, 2), fresh("replier"), fresh("asker")
        address = cluster.address
        answering.call("replier", name=replier, group=fresh("repliers"), namesrv=address, topics={name: "*"})
        asking.call("producer", name=asker, group=fresh("askers"), namesrv=address)
        try:
            answer = asking.call("request", name=asker, message=asked(name, "anybody?"), timeoutMs=60_000, **how)
        finally:
            asking.call("stop", name=asker)
            answering.call("stop", name=replier)
        assert base64.b64decode(answer["body"]) == b"re: anybody?"


def test_java_calls_the_methods_of_a_python_program(
    cluster: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, asker, address = topic(cluster, judge, 2), fresh("asker"), cluster.address
    judge.call("producer", name=asker, group=fresh("askers"), namesrv=address)

    def ask(method: str, arguments: object) -> tuple[str, dict[str, str]]:
        question = {**asked(name, json.dumps(arguments)), "tags": method}
        answer = judge.call("request", name=asker, message=question, timeoutMs=60_000)
        return base64.b64decode(answer["body"]).decode(), answer["properties"]

    async def work() -> list[tuple[str, dict[str, str]]]:
        rpc = RPC(name, fresh("repliers"), nameserver=address)

        @rpc.method
        async def price(item: str, amount: int = 1) -> dict[str, int]:
            if amount < 1:
                raise ValueError("nothing to sell")
            return {item: 350 * amount}

        async with rpc:
            calls = (["salad"], {"item": "salad", "amount": 2}, ["salad", 0])
            return [await asyncio.to_thread(ask, "price", arguments) for arguments in calls]

    try:
        by_position, by_name, failed = python.run(work())
    finally:
        judge.call("stop", name=asker)

    assert (by_position[0], by_name[0]) == ('{"salad":350}', '{"salad":700}')
    assert by_name[1]["contentType"] == "application/json" and "errorType" not in by_name[1]
    assert failed[0] == "nothing to sell" and failed[1]["errorType"] == "ValueError"


def test_python_asks_java_and_hears_of_its_errors(
    cluster: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    address = cluster.address
    for error, heard in ((None, b"re: anybody?"), ("IllegalStateException", "IllegalStateException: re: anybody?")):
        name, replier = topic(cluster, judge, 2), fresh("replier")
        more: dict[str, Any] = {} if error is None else {"errorType": error}
        judge.call("replier", name=replier, group=fresh("repliers"), namesrv=address, topics={name: "*"}, **more)

        async def ask(name: str = name) -> bytes | str:
            async with Producer(fresh("askers"), nameserver=address) as producer:
                try:
                    return (await producer.request(Message(name, b"anybody?"), timeout=60)).body
                except RemoteError as failed:
                    return str(failed)

        try:
            assert python.run(ask()) == heard
        finally:
            judge.call("stop", name=replier)
