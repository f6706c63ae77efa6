"""Questions and their answers, by a real broker."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from eruca.client import ClientSettings, Message, Producer, PushConsumer, ReceivedMessage
from eruca.client.errors import BadMessage, BrokerRefused, CallTimeout, SendFailed
from eruca.protocol.bodies import BrokerData, ClusterInfo, RegisterBrokerBody
from tests.client.conftest import Lab, Seen, eventually
from tests.support.peers import Peer
from tests.support.scripted import Scripted


def replier(lab: Lab, repeat: int) -> Callable[[ReceivedMessage], Awaitable[None]]:
    async def listener(message: ReceivedMessage) -> None:
        if "CORRELATION_ID" in message.properties:
            await lab.producer.reply(message, (b"re: " + message.body) * repeat)

    return listener


@pytest.mark.parametrize("repeat", [1, 2000], ids=["short", "compressed"])
async def test_each_question_gets_its_answer(lab: Lab, repeat: int) -> None:
    await lab.send("T", b"no question")
    async with Producer("askers", nameserver=lab.address) as producer:
        with pytest.raises(BadMessage):
            await lab.producer.reply(await first_of(lab), b"x")
        async with PushConsumer("g", replier(lab, repeat), nameserver=lab.address, start_from="first").subscribe("T"):
            questions = [b"%d" % number for number in range(20)]
            answers = await asyncio.gather(
                *(producer.request(Message("T", question), timeout=10) for question in questions)
            )
    assert [answer.body for answer in answers] == [(b"re: " + question) * repeat for question in questions]
    assert {answer.topic for answer in answers} == {"DefaultCluster_REPLY_TOPIC"}
    assert {answer.properties["MSG_TYPE"] for answer in answers} == {"reply"}
    assert all(answer.born_host.startswith("127.0.0.1:") for answer in answers)


async def test_a_question_and_its_answer_have_properties_of_their_senders(lab: Lab) -> None:
    asked = Seen()

    async def listener(message: ReceivedMessage) -> None:
        asked.add(message)
        await lab.producer.reply(message, Message("any", b"x", properties={"currency": "EUR"}))

    await lab.producer.create_topic("T", 1)
    async with PushConsumer("g", listener, nameserver=lab.address, start_from="first").subscribe("T"):
        question = Message("T", b"x", tags="t", keys="k", properties={"table": "3"}, delay=0.001)
        answer = await lab.producer.request(question, timeout=10)
    assert asked.messages[0].user_properties == {"table": "3"}
    assert answer.user_properties == {"currency": "EUR"}


async def first_of(lab: Lab) -> ReceivedMessage:
    seen = Seen()
    async with PushConsumer("look", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await seen.reaches(1)
    return seen.messages[0]


async def test_no_answer_in_time(lab: Lab) -> None:
    async with Producer("askers", nameserver=lab.address) as producer:
        await producer.send(Message("T", b"hello"))  # the time is for the answer, not for a route and a connection
        began = time.monotonic()
        with pytest.raises(CallTimeout, match="message to <T> OK, but wait reply message timeout, 400 ms"):
            await producer.request(Message("T", b"anybody?"), timeout=0.4)
        assert time.monotonic() - began > 0.35
        assert producer.session.requests._waiting == {}


async def test_an_answer_to_a_client_that_is_gone_is_refused(lab: Lab) -> None:
    async with Producer("askers", nameserver=lab.address) as producer:
        with pytest.raises(CallTimeout):
            await producer.request(Message("T", b"anybody?"), timeout=0.2)
    question = await first_of(lab)
    # The lab's producer shared the session of the one that asked, so a stranger's id stands in for it.
    text = question.record.properties_text.replace(question.properties["REPLY_TO_CLIENT"].encode(), b"10.9.9.9@gone")
    stranger = ReceivedMessage(question.record._replace(properties_text=text), question.queue)
    with pytest.raises((BrokerRefused, SendFailed), match=r"10\.9\.9\.9@gone|Send"):
        await lab.producer.reply(stranger, b"too late")


async def test_an_answer_that_comes_too_late_harms_nobody(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    async with Producer("askers", nameserver=lab.address) as producer:
        with pytest.raises(CallTimeout):
            await producer.request(Message("T", b"anybody?"), timeout=0.2)
        await lab.producer.reply(await first_of(lab), b"late")
    assert "a reply belongs to no request" in caplog.text


@pytest.mark.slow
async def test_a_broker_that_hangs_keeps_no_question_waiting(lab: Lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        registrar = await Peer().connect(lab.address)
        address = f"127.0.0.1:{hung.getsockname()[1]}"
        broker = {"brokerName": "b", "brokerAddr": address, "clusterName": "DefaultCluster", "haServerAddr": ""}
        answer = await registrar.ask(103, {**broker, "brokerId": 0}, RegisterBrokerBody().encode())
        assert answer.code == 0
        settings = ClientSettings(request_timeout=60, nameserver=lab.address)
        async with (
            asyncio.timeout(30),
            PushConsumer("g", replier(lab, 1), nameserver=lab.address, start_from="first").subscribe("T"),
            Producer("askers", settings=settings) as producer,
        ):
            reply = await producer.request(Message("T", b"1"), timeout=20)
            hung.accept()[0].close()
        await registrar.close()
    assert reply.body == b"re: 1"


async def test_brokers_are_told_later_of_who_asks_when_no_nameserver_tells_of_them_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Scripted("broker-a") as server, Scripted("broker-b") as other:
        server.knows("T", server)
        settings = ClientSettings(nameserver=server.address, heartbeat_interval=0.05)
        async with Producer("askers", settings=settings) as producer:
            with pytest.raises(CallTimeout, match="OK, but wait reply message timeout"):
                await producer.request(Message("T", b"anybody?"), timeout=1)
            assert (
                len(server.sends) == 1
                and not other.heartbeats
                and "the brokers that get heartbeats cannot be looked up" in caplog.text
            )
            told = BrokerData(broker_name="broker-b", broker_addrs={0: other.address}, cluster="Lab")
            server.cluster = ClusterInfo(broker_addr_table={"broker-b": told}, cluster_addr_table={})
            await eventually(lambda: bool(other.heartbeats))
