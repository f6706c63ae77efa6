"""Sending: routes, retries by rule, time-outs, and what the result says."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from eruca.client import (
    ClientSettings,
    Message,
    MessageQueue,
    Producer,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from eruca.client.errors import (
    BadMessage,
    BrokerNotFound,
    BrokerRefused,
    CallTimeout,
    ClientError,
    NameserverUnreachable,
    SendFailed,
    StateError,
    TopicNotFound,
    UsageError,
)
from eruca.protocol.message import decode_properties
from tests.support.ports import free_port
from tests.support.scripted import SILENT, Scripted

HELLO = Message("T", b"hello")


class Lab:
    """A nameserver, two brokers with two queues of T each, and producers."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.names, self.a, self.b = Scripted("names"), Scripted("broker-a"), Scripted("broker-b")

    async def start(self) -> None:
        for server in (self.names, self.a, self.b):
            await self._stack.enter_async_context(server)
        self.names.knows("T", self.a, self.b, queues=2)

    async def producer(self, **settings: object) -> Producer:
        given = {"nameserver": self.names.address, **settings}
        return await self._stack.enter_async_context(Producer("g", **given))  # type: ignore[arg-type]


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        lab = Lab(stack)
        await lab.start()
        yield lab


async def test_the_result_says_where_the_message_is(lab: Lab) -> None:
    producer = await lab.producer()
    result = await producer.send(Message("T", b"hello", tags="A", keys="k"), queue=MessageQueue("T", "broker-b", 1))
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue("T", "broker-b", 1) and result.offset == 0
    assert result.offset_message_id == "0" * 32
    (header,) = lab.b.sends
    properties = decode_properties(header.properties.encode())
    assert properties == {"UNIQ_KEY": result.message_id, "WAIT": "true", "TAGS": "A", "KEYS": "k"}
    assert (header.producer_group, header.topic, header.default_topic, header.batch) == ("g", "T", "TBW102", False)
    assert lab.b.bodies == [b"hello"]


async def test_queues_take_turns(lab: Lab) -> None:
    producer = await lab.producer()
    results = [await producer.send(HELLO) for _ in range(8)]
    assert {result.queue for result in results[:4]} == {result.queue for result in results[4:]}
    assert len(lab.a.sends) == len(lab.b.sends) == 4
    assert lab.names.asked.count("T") == 1


async def test_pipelined_sends_end_in_their_order(lab: Lab) -> None:
    producer = await lab.producer()
    queue = MessageQueue("T", "broker-a", 0)
    sends = [producer.start_send(Message("T", b"%d" % number), queue=queue) for number in range(100)]
    assert [(await send).offset for send in sends] == list(range(100))
    assert lab.a.bodies == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 215])
async def test_after_these_answers_another_broker_is_asked(lab: Lab, code: int) -> None:
    lab.a.answers.extend([code] * 10)
    producer = await lab.producer()
    results = [await producer.send(HELLO) for _ in range(4)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert 1 <= len(lab.a.sends) <= 4


@pytest.mark.parametrize("code", [13, 999])
async def test_other_answers_are_final(lab: Lab, code: int) -> None:
    lab.a.answers.append(code)
    lab.b.answers.append(code)
    producer = await lab.producer()
    with pytest.raises(BrokerRefused, match=f"broker-. says {code}") as raised:
        await producer.send(HELLO)
    assert raised.value.code == code
    assert not raised.value.retriable
    assert len(lab.a.sends) + len(lab.b.sends) == 1


async def test_a_program_may_name_more_answers(lab: Lab) -> None:
    lab.a.answers.extend([900] * 4)
    producer = await lab.producer(retry_codes=[900])
    assert {(await producer.send(HELLO)).queue.broker_name for _ in range(4)} == {"broker-b"}
    lab.b.answers.append(13)
    with pytest.raises(BrokerRefused, match="broker-b says 13"):
        await producer.send(HELLO, queue=MessageQueue("T", "broker-b", 0))


async def test_when_every_attempt_failed_the_sentence_tells_all(lab: Lab) -> None:
    lab.a.answers.extend([1] * 3)
    lab.b.answers.extend([1] * 3)
    producer = await lab.producer(retries=3)
    with pytest.raises(SendFailed) as raised:
        await producer.send(HELLO)
    error = raised.value
    sentence = r"Send \[4\] times, still failed, cost \[\d+\]ms, Topic: T, BrokersSent: \[broker-., broker-., .*\]"
    assert re.fullmatch(sentence + r"; the last time: .*broker-. says 1.*", str(error))
    assert error.attempts == 4 and error.retriable and isinstance(error.__cause__, BrokerRefused)
    assert error.brokers in (("broker-a", "broker-b") * 2, ("broker-b", "broker-a") * 2)


async def test_a_killed_broker_costs_no_send(lab: Lab) -> None:
    producer = await lab.producer()
    await asyncio.gather(*(producer.send(HELLO) for _ in range(4)))
    await lab.a.stop()
    results = [await producer.send(HELLO) for _ in range(6)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_a_chosen_queue_gets_one_attempt(lab: Lab) -> None:
    lab.a.answers.append(1)
    producer = await lab.producer()
    with pytest.raises(BrokerRefused):
        await producer.send(HELLO, queue=MessageQueue("T", "broker-a", 0))
    assert len(lab.a.sends) == 1 and not lab.b.sends


async def test_silence_ends_with_the_time_of_the_whole_send(lab: Lab) -> None:
    lab.a.answers.append(SILENT)
    lab.b.answers.append(SILENT)
    producer = await lab.producer(send_timeout=0.2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(CallTimeout, match="sendDefaultImpl call timeout"):
        await producer.send(HELLO)
    assert 0.19 < loop.time() - began < 1.0
    assert isinstance(CallTimeout(""), TimeoutError)


async def test_the_time_may_be_given_for_one_send(lab: Lab) -> None:
    lab.a.answers.append(SILENT)
    producer = await lab.producer()
    with pytest.raises(CallTimeout):
        await producer.send(HELLO, queue=MessageQueue("T", "broker-a", 0), timeout=0.05)


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, SendStatus.FLUSH_DISK_TIMEOUT), (11, SendStatus.SLAVE_NOT_AVAILABLE), (12, SendStatus.FLUSH_SLAVE_TIMEOUT)],
)
async def test_stored_but_not_as_asked_is_a_result(lab: Lab, code: int, status: SendStatus) -> None:
    lab.a.answers.append(code)
    producer = await lab.producer()
    assert (await producer.send(HELLO, queue=MessageQueue("T", "broker-a", 0))).status is status


async def test_stored_but_not_as_asked_is_tried_again_on_demand(lab: Lab) -> None:
    lab.a.answers.extend([11] * 5)
    producer = await lab.producer(retry_when_not_stored=True)
    results = [await producer.send(HELLO) for _ in range(2)]
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert {result.queue.broker_name for result in results} == {"broker-b"}


@pytest.mark.parametrize("code", [1, 13], ids=["tried again", "given up"])
async def test_what_is_stored_is_no_failure_whatever_the_next_try_comes_to(lab: Lab, code: int) -> None:
    lab.names.knows("T", lab.a)
    lab.a.answers.extend([11, code, code])
    producer = await lab.producer(retry_when_not_stored=True)
    assert (await producer.send(HELLO)).status is SendStatus.SLAVE_NOT_AVAILABLE
    assert len(lab.a.sends) == (3 if code == 1 else 2)


async def test_a_new_topic_goes_to_the_templates_brokers(lab: Lab) -> None:
    lab.names.knows("TBW102", lab.a, queues=8, perm=7)
    producer = await lab.producer(new_topic_queues=2)
    results = [await producer.send(Message("New", b"x")) for _ in range(4)]
    assert {result.queue.queue_id for result in results} == {0, 1}
    assert lab.a.sends[0].default_topic_queue_nums == 2


async def test_an_unknown_topic_without_a_template(lab: Lab) -> None:
    producer = await lab.producer()
    with pytest.raises(TopicNotFound, match=r"No route info of this topic: Nowhere\. Create it with mqadmin"):
        await producer.send(Message("Nowhere", b"x"))


async def test_a_topic_that_cannot_be_written(lab: Lab) -> None:
    lab.names.knows("ReadOnly", lab.a, perm=4)
    producer = await lab.producer()
    with pytest.raises(TopicNotFound, match="has no queue that can be written"):
        await producer.send(Message("ReadOnly", b"x"))


async def test_a_broker_that_the_route_does_not_name(lab: Lab) -> None:
    producer = await lab.producer()
    with pytest.raises(BrokerNotFound, match=r"The broker\[nobody\] not exist"):
        await producer.send(HELLO, queue=MessageQueue("T", "nobody", 0))


async def test_a_dead_nameserver_in_the_list_is_passed_over(lab: Lab) -> None:
    dead = f"127.0.0.1:{free_port()}"
    for addresses in ([dead, lab.names.address], [lab.names.address, dead]):
        async with Producer("g2", nameserver=addresses) as producer:
            assert (await producer.send(HELLO)).status is SendStatus.SEND_OK


async def test_no_nameserver_answers() -> None:
    dead = f"127.0.0.1:{free_port()}"
    clock = asyncio.get_running_loop().time
    for retries, waits in ((2, True), (0, False)):
        async with Producer("g", nameserver=dead, send_timeout=0.5, retries=retries) as producer:
            for queue in (None, MessageQueue("T", "broker-a", 0)):
                began = clock()
                with pytest.raises(NameserverUnreachable, match=f"None of the nameservers {dead} answered"):
                    await producer.send(HELLO, queue=queue)
                assert (clock() - began >= 0.5) is waits
            assert producer.in_flight == 0


@pytest.mark.parametrize("queue", [None, MessageQueue("T", "broker-a", 0)], ids=["any queue", "a chosen queue"])
async def test_sends_wait_for_a_nameserver_that_is_away(lab: Lab, queue: MessageQueue | None) -> None:
    """Those to a topic without a known route, too; they leave in their order when it is back."""
    producer = await lab.producer(send_timeout=30)
    await lab.names.stop()
    sends = [producer.start_send(Message("T", b"%d" % number), queue=queue) for number in range(200)]
    done, _ = await asyncio.wait(sends, timeout=0.2)
    assert not done
    await lab.names.start()
    await asyncio.gather(*sends)
    if queue is not None:
        assert lab.a.bodies == [b"%d" % number for number in range(200)]


async def test_what_is_known_is_enough_while_the_nameserver_is_away(lab: Lab) -> None:
    producer = await lab.producer()
    await producer.send(HELLO)
    await lab.names.stop()
    assert (await producer.send(HELLO)).status is SendStatus.SEND_OK


async def test_a_selector_chooses_with_its_argument(lab: Lab) -> None:
    producer = await lab.producer()
    result = await producer.send(HELLO, selector=lambda queues, message, arg: queues[int(str(arg))], arg=3)
    assert result.queue == MessageQueue("T", "broker-b", 1)
    with pytest.raises(UsageError, match="select message queue return null"):
        await producer.send(HELLO, selector=lambda queues, message, arg: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadMessage, match="message's topic not equal mq's topic"):
        await producer.send(HELLO, queue=MessageQueue("Other", "broker-a", 0))
    with pytest.raises(ZeroDivisionError):
        await producer.send(HELLO, selector=lambda queues, message, arg: queues[1 // 0])


async def test_a_large_body_travels_compressed(lab: Lab) -> None:
    producer = await lab.producer()
    await producer.send(Message("T", b"z" * 100_000), queue=MessageQueue("T", "broker-a", 0))
    assert lab.a.sends[0].sys_flag == 0x301 and len(lab.a.bodies[0]) < 1000


async def test_a_batch_is_one_request(lab: Lab) -> None:
    producer = await lab.producer()
    result = await producer.send_batch([Message("T", b"1"), Message("T", b"2"), Message("T", b"3")])
    assert len(result.message_id.split(",")) == 3
    (header,) = lab.a.sends + lab.b.sends
    assert header.batch


async def test_a_one_way_send_asks_for_nothing(lab: Lab) -> None:
    producer = await lab.producer()
    await producer.send_oneway(HELLO, queue=MessageQueue("T", "broker-a", 0))
    await producer.send(HELLO, queue=MessageQueue("T", "broker-a", 0))  # on the same connection, so it came later
    assert len(lab.a.sends) == 2


@pytest.mark.slow
async def test_a_broker_that_does_not_read_holds_up_a_oneway_send_for_the_send_timeout(lab: Lab) -> None:
    producer = await lab.producer(send_timeout=0.2, compress_from=1 << 30)
    queue = MessageQueue("T", "broker-a", 0)
    await producer.send(HELLO, queue=queue, timeout=30)
    for connection in lab.a.connections:
        connection._transport.pause_reading()  # type: ignore[union-attr]
    with pytest.raises(CallTimeout, match=r"sendOneway call timeout: the broker at \S+ has not read .* for 0\.2 s"):
        for _ in range(50):
            await producer.send_oneway(Message("T", b"x" * 4_000_000), queue=queue)


async def test_brokers_know_the_producer_before_its_first_message_and_not_after_its_end(lab: Lab) -> None:
    async with Producer("shown", nameserver=lab.names.address) as producer:
        await producer.send(HELLO, queue=MessageQueue("T", "broker-a", 0))
        assert [each.group_name for each in lab.a.heartbeats[0].producer_data_set] == ["shown"]
        assert not lab.a.unregistered
    assert [header.producer_group for header in lab.a.unregistered] == ["shown"]


async def test_a_broker_that_restarted_is_told_again(lab: Lab) -> None:
    producer = await lab.producer(retries=0)
    queue = MessageQueue("T", "broker-a", 0)
    await producer.send(HELLO, queue=queue)
    await lab.a.stop()
    await lab.a.start()
    await producer.send(HELLO, queue=queue)
    assert len(lab.a.heartbeats) == 2


async def test_a_heartbeat_that_is_refused_stops_no_message(lab: Lab) -> None:
    lab.a.refused_codes.add(34)
    producer = await lab.producer()
    assert (await producer.send(HELLO, queue=MessageQueue("T", "broker-a", 0))).status is SendStatus.SEND_OK


async def test_clients_with_equal_settings_share_one_session(lab: Lab) -> None:
    first, second = await lab.producer(), await lab.producer()
    other = await lab.producer(settings=ClientSettings(instance_name="other"))
    assert first.session is second.session is not other.session
    assert other.session.client_id.endswith("@other")


async def test_stop_waits_for_the_sends_under_way(lab: Lab) -> None:
    producer = Producer("g", nameserver=lab.names.address)
    await producer.start()
    sends = [producer.start_send(HELLO) for _ in range(50)]
    await producer.stop()
    assert all(send.done() and send.exception() is None for send in sends)


@pytest.mark.parametrize("transactions", [False, True])
async def test_a_stop_that_is_cancelled_leaves_the_brokers_all_the_same(lab: Lab, transactions: bool) -> None:
    producer = Producer("g", nameserver=lab.names.address)
    if transactions:
        producer = TransactionProducer("g", lambda message: TransactionState.UNKNOWN, nameserver=lab.names.address)
    await producer.start()
    queue = MessageQueue("T", "broker-a", 0)
    await producer.send(HELLO, queue=queue)
    lab.a.answers.append(SILENT)
    send = producer.start_send(HELLO, queue=queue)
    stop = asyncio.ensure_future(producer.stop())
    await asyncio.sleep(0)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    assert len(lab.a.unregistered) == 1
    with pytest.raises(ClientError):
        await send


async def test_two_may_stop_it_at_once(lab: Lab) -> None:
    producer = Producer("g", nameserver=lab.names.address)
    await producer.start()
    send = producer.start_send(HELLO)
    await asyncio.gather(producer.stop(), producer.stop())
    assert send.done() and len(lab.a.unregistered) + len(lab.b.unregistered) == 1


async def test_a_cancelled_send_leaves_nothing_behind(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.a.answers.append(SILENT)
    producer = await lab.producer(send_timeout=0.1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.send(HELLO, queue=MessageQueue("T", "broker-a", 0)), 0.02)
    with caplog.at_level(logging.ERROR):
        await producer.stop()
    assert not caplog.records


async def test_states_are_told(lab: Lab) -> None:
    producer = Producer("g", nameserver=lab.names.address)
    with pytest.raises(StateError, match=r"call start\(\) or use `async with` first"):
        await producer.send(HELLO)
    await producer.start()
    with pytest.raises(StateError, match="The producer service state not OK, maybe started once"):
        await producer.start()
    await producer.stop()
    await producer.stop()
    with pytest.raises(StateError):
        producer.start_send(HELLO)


async def test_where_all_known_brokers_failed_a_nameserver_is_asked_before_the_next_try() -> None:
    """As when one broker after the other is restarted: the route that is known has only the one that stops now."""
    async with Scripted() as names, Scripted("broker-a") as first, Scripted("broker-b") as second:
        names.knows("T", first)
        async with Producer("g", nameserver=names.address) as producer:
            await producer.send(HELLO)
            names.knows("T", second)
            await first.stop()
            assert (await producer.send(HELLO)).queue.broker_name == "broker-b"
