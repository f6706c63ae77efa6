"""Questions and their answers, by a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from eruca.client import Message, Producer, PushConsumer, ReceivedMessage
from eruca.client.errors import BadMessage, BrokerRefused, CallTimeout, SendFailed
from tests.client.conftest import Lab, Seen


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


async def first_of(lab: Lab) -> ReceivedMessage:
    seen = Seen()
    async with PushConsumer("look", seen.coroutine, nameserver=lab.address, start_from="first").subscribe("T"):
        await seen.reaches(1)
    return seen.messages[0]


async def test_no_answer_in_time(lab: Lab) -> None:
    async with Producer("askers", nameserver=lab.address) as producer:
        began = time.monotonic()
        with pytest.raises(CallTimeout, match="message to <T> OK, but wait reply message timeout, 200 ms"):
            await producer.request(Message("T", b"anybody?"), timeout=0.2)
        assert 0.15 < time.monotonic() - began < 2
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
    assert "an answer came to nobody's question" in caplog.text
