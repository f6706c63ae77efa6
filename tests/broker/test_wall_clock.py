"""The wall clock of a broker jumps: what lasts so many seconds lasts them all the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from eruca.protocol.bodies import ConsumerIdList, KVTable, LockBatchAnswer, LockBatchRequest, ProducerTableInfo
from eruca.protocol.queues import MessageQueue
from tests.support.desk import Desk
from tests.support.half_messages import CHECK, GIVEN_UP, HALF, send

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LOCK, MEMBERS, RUNTIME, ALL_PRODUCERS = 41, 38, 28, 328
JUMPS = [5 * MINUTE, 4 * DAY, -DAY]
QUEUE = MessageQueue("T", "broker-a", 0)
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


async def locked(desk: Desk, client_id: str) -> list[MessageQueue]:
    """The queues that a client holds after it has asked for the lock."""
    ask = LockBatchRequest(client_id=client_id, consumer_group="g", mq_set=[QUEUE])
    return LockBatchAnswer.decode((await desk.ask(LOCK, body=ask.encode())).body).locked


async def members(desk: Desk) -> list[str]:
    answer = await desk.ask(MEMBERS, {"consumerGroup": "g"})
    return ConsumerIdList.decode(answer.body).consumer_id_list


@pytest.mark.parametrize("jump", JUMPS)
async def test_an_ordered_queue_stays_with_its_owner_until_its_time_is_over(desk: Desk, jump: int) -> None:
    assert await locked(desk, "one") == [QUEUE]

    desk.jump(jump)

    assert await locked(desk, "two") == []
    desk.now += MINUTE
    assert await locked(desk, "two") == []
    desk.now += 1
    assert await locked(desk, "two") == [QUEUE]


@pytest.mark.parametrize("jump", JUMPS)
async def test_only_who_was_silent_for_so_long_loses_its_connection(prepared: Prepared, jump: int) -> None:
    def impatient(desk: Desk) -> None:
        desk.config.channel_expired_timeout = 100

    desk = await prepared(impatient)
    silent = await desk.producer("pg", client_id="silent")
    desk.now += 60
    consumer = await desk.consumer("g", "T", client_id="c1")
    await desk.producer("pg", client_id="p1")

    desk.jump(jump)
    desk.now += 50

    await silent.ended()
    assert await members(desk) == ["c1"]
    assert desk.broker.clients.producer("p1") is not None
    assert (await consumer.ask(34, {}, b'{"clientID":"c1"}')).code == 0


@pytest.mark.parametrize("jump", JUMPS)
async def test_when_a_producer_was_heard_of_is_said_by_the_present_clock(desk: Desk, jump: int) -> None:
    await desk.producer("pg")
    desk.jump(jump)
    desk.now += 7000

    producers = ProducerTableInfo.decode((await desk.ask(ALL_PRODUCERS)).body).data["pg"]

    assert [producer.last_update_timestamp for producer in producers] == [desk.now - 7000]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_transaction_is_as_old_as_the_time_that_has_passed(desk: Desk, jump: int) -> None:
    producer = await desk.producer("PG")
    await send(desk)

    desk.jump(jump)
    await send(desk, "K2")
    desk.now += 5999
    await desk.broker.check_backs.round()
    assert (len(desk.records(HALF)), desk.records(GIVEN_UP)) == (2, [])
    desk.now += 1
    await desk.broker.check_backs.round()

    assert len(await producer.received(CHECK, 2)) == 2


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_transaction_that_was_asked_about_before_the_jump_is_asked_about_again(desk: Desk, jump: int) -> None:
    producer = await desk.producer("PG")
    await send(desk)
    desk.now += 6000
    await desk.broker.check_backs.round()
    await producer.received(CHECK)

    desk.jump(jump)
    desk.now += 1
    await desk.broker.check_backs.round()

    await producer.received(CHECK)
    assert desk.records(GIVEN_UP) == []


@pytest.mark.parametrize("jump", JUMPS)
async def test_the_next_round_of_checks_comes_one_interval_after_the_last(desk: Desk, jump: int) -> None:
    producer = await desk.producer("PG")
    await send(desk)
    await desk.broker.check_backs.keep()

    desk.jump(jump)
    desk.now += MINUTE - 1
    await desk.broker.check_backs.keep()
    assert len(desk.records(HALF)) == 1
    desk.now += 1
    await desk.broker.check_backs.keep()

    await producer.received(CHECK)


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_broker_has_run_for_as_long_as_it_has(desk: Desk, jump: int) -> None:
    desk.jump(jump)
    desk.now += 3 * HOUR

    figures = KVTable.decode((await desk.ask(RUNTIME)).body).table

    assert figures["runtime"] == "[ 0 days, 3 hours, 0 minutes, 0 seconds ]"
