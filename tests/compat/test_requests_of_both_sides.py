"""Request-reply between Java and Python: each asks, the other answers, on Apache's brokers and on Eruca's."""

from __future__ import annotations

import base64
from collections.abc import Callable

from eruca.client import Message, Producer, PushConsumer, ReceivedMessage
from tests.compat.clients import PythonClients
from tests.compat.conftest import Cluster
from tests.support.java import Judge

MakeTopic = Callable[[Cluster, Judge, int], str]


def test_python_asks_and_java_answers(
    each_cluster: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, replier = topic(each_cluster, judge, 2), fresh("replier")
    judge.call(
        "replier", name=replier, group=fresh("repliers"), namesrv=each_cluster.address, topics={name: "*"}, repeat=2000
    )
    producer = Producer(fresh("askers"), nameserver=each_cluster.address)
    python.run(producer.start())
    try:
        answer = python.run(producer.request(Message(name, b"question"), timeout=30))
    finally:
        python.run(producer.stop())
        judge.call("stop", name=replier)
    assert answer.body == b"re: question" * 2000
    assert answer.topic == "JudgeCluster_REPLY_TOPIC"


def test_java_asks_and_python_answers(
    each_cluster: Cluster, judge: Judge, python: PythonClients, topic: MakeTopic, fresh: Callable[[str], str]
) -> None:
    name, asker = topic(each_cluster, judge, 2), fresh("asker")
    producer = Producer(fresh("answers"), nameserver=each_cluster.address)

    async def listener(message: ReceivedMessage) -> None:
        await producer.reply(message, b"re: " + message.body, timeout=15)

    consumer = PushConsumer(fresh("repliers"), listener, nameserver=each_cluster.address, start_from="first")
    python.run(producer.start())
    python.run(consumer.subscribe(name).start())
    judge.call("producer", name=asker, group=fresh("askers"), namesrv=each_cluster.address)
    try:
        question = {"topic": name, "body": base64.b64encode(b"question").decode()}
        answer = judge.call("request", name=asker, message=question, timeoutMs=30_000)
    finally:
        judge.call("stop", name=asker)
        python.run(consumer.stop())
        python.run(producer.stop())
    assert base64.b64decode(answer["body"]) == b"re: question"
