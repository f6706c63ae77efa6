"""Half messages that were given up: what a broker that ended in the middle leaves, those without a key, and many."""

from __future__ import annotations

import asyncio

import pytest

from eruca.broker.services.given_up import AT_ONCE, REOPENED
from eruca.protocol.record import Record
from tests.broker.services.replication.pairs import until
from tests.support.desk import START, Desk
from tests.support.half_messages import (
    CHECK,
    COMMIT,
    END,
    GIVEN_UP,
    HALF,
    OP,
    RESUME,
    ROLLBACK,
    SEND,
    end,
    half,
    place,
    send,
)
from tests.support.sends import message

CHANGE, MAX_OFFSET = 25, 30


async def give_up(desk: Desk) -> None:
    """Let the half messages that are undecided be given up."""
    desk.config.transaction_check_max = 0
    await desk.producer("PG")
    desk.now += 60_000
    await desk.broker.check_backs.round()


async def succeed(desk: Desk) -> None:
    """Start the broker again, and let it end what was begun, as it does in its first second."""
    await desk.restart()
    await desk.broker.check_backs.keep()


def fill(desk: Desk, topic: str, count: int, more: str = "") -> None:
    """Store half messages of others."""
    properties = "TRAN_MSG\x01true\x02UNIQ_KEY\x01%d\x02PGROUP\x01PG" + more
    for number in range(count):
        desk.store(topic, 0, desk.now - START, properties=(properties % number).encode())


async def resume(desk: Desk, number: int = 0) -> int:
    """Have one that was given up checked again; the code of the answer."""
    return (await desk.ask(RESUME, {"msgId": desk.records(GIVEN_UP)[number].offset_message_id})).code


async def without_key(desk: Desk) -> dict[str, object]:
    """Send a half message that has no unique key; what ends it."""
    desk.topic("T")
    answer = await desk.ask(SEND, half(i="TRAN_MSG\x01true\x02PGROUP\x01PG"), b"half")
    assert answer.code == 0, answer.remark
    return place(answer)


def copied(desk: Desk, topic: str, half: Record, more: bytes = b"") -> None:
    """Store a copy of a half message, and nothing that belongs to it, as a broker that ended in the middle."""
    desk.broker.store.appender.put(
        topic,
        0,
        half.body,
        half.properties_text + more,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=half.store_host,
    )
    desk.broker.store.drain()


def delivered(desk: Desk) -> list[bytes]:
    return [record.body for record in desk.records("T")]


@pytest.mark.parametrize(("decision", "bodies"), [(COMMIT, [b"half"]), (ROLLBACK, [])])
async def test_one_whose_op_message_a_dead_broker_did_not_store_is_decided_once(
    desk: Desk, decision: int, bodies: list[bytes]
) -> None:
    where = await send(desk)
    copied(desk, GIVEN_UP, desk.records(HALF)[0])
    await succeed(desk)
    assert len(desk.broker.halves.undecided) == 0, "it is given up"

    assert (await end(desk, where, decision)).code == 0

    for _ in range(2):
        assert (await end(desk, where, COMMIT)).code == 0
        assert await resume(desk) == 1
        await desk.restart()
    assert delivered(desk) == bodies


async def test_one_that_a_dead_broker_had_opened_again_without_saying_so_is_decided_once(desk: Desk) -> None:
    where = await send(desk)
    await give_up(desk)
    copied(desk, HALF, desk.records(GIVEN_UP)[0], b"\x02TRANSACTION_CHECK_TIMES\x010")
    await desk.restart()
    assert len(desk.broker.halves.undecided) == 1

    assert (await end(desk, where, COMMIT)).code == 0

    await desk.restart()
    assert (await end(desk, where, COMMIT)).code == 0
    assert await resume(desk) == 1
    assert delivered(desk) == [b"half"]


async def test_one_that_rocketmq_gave_up_is_decided_once_also_where_the_progress_is_lost(desk: Desk) -> None:
    """RocketMQ leaves no op message for it."""
    where = await send(desk)
    copied(desk, GIVEN_UP, desk.records(HALF)[0])
    await succeed(desk)
    assert len(desk.broker.halves.undecided) == 0
    assert (await end(desk, where, COMMIT)).code == 0

    desk.broker.offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 500)
    await succeed(desk)

    assert len(desk.broker.halves.undecided) == 0
    assert (await end(desk, where, COMMIT)).code == 0
    assert delivered(desk) == [b"half"]


async def test_one_without_a_key_is_decided_once(desk: Desk) -> None:
    where = await without_key(desk)
    await give_up(desk)

    assert (await end(desk, where, COMMIT)).code == 0
    assert delivered(desk) == [b"half"]

    await desk.restart()
    assert (await end(desk, where, COMMIT)).code == 0
    assert await resume(desk) == 1
    assert delivered(desk) == [b"half"]


async def test_one_without_a_key_that_is_undecided_stays_one_when_it_is_checked_again(desk: Desk) -> None:
    await without_key(desk)
    (first,) = desk.records(HALF)

    assert (await desk.ask(RESUME, {"msgId": first.offset_message_id})).code == 0

    assert len(desk.broker.halves.undecided) == 1
    await desk.restart()
    producer = await desk.producer("PG")
    desk.now += 60_000
    await desk.broker.check_backs.round()
    (question,) = await producer.received(CHECK)
    asked: dict[str, object] = {name: question.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    assert (await end(desk, asked, COMMIT)).code == 0
    assert delivered(desk) == [b"half"]


async def test_what_was_opened_again_in_a_queue_that_is_gone_opens_nothing_in_the_next_one(desk: Desk) -> None:
    """Its offsets begin at 0 again, as after cleanExpiredCQ (306)."""
    await end(desk, await send(desk, "K0"), COMMIT)
    where = await send(desk, "K1")
    await give_up(desk)
    assert (await end(desk, where, ROLLBACK)).code == 0
    desk.broker.store.drain()
    desk.broker.store.drop_topic(GIVEN_UP)
    where = await send(desk, "K2")
    await give_up(desk)
    (record,) = desk.records(GIVEN_UP)
    assert (record.queue_offset, record.unique_key) == (0, "K2")

    await desk.restart()

    assert (await end(desk, where, COMMIT)).code == 0
    assert [record.unique_key for record in desk.records("T")] == ["K0", "K2"]


@pytest.mark.parametrize("asks", ["the end", "checking again"])
async def test_others_are_served_while_many_are_read(desk: Desk, asks: str) -> None:
    where = await send(desk)
    await give_up(desk)
    fill(desk, GIVEN_UP, 3000)
    message_id = desk.records(GIVEN_UP)[0].offset_message_id
    await desk.restart()
    other = await desk.peer()
    order: list[str] = []

    async def first() -> None:
        answer = await (end(desk, where, COMMIT) if asks == "the end" else desk.ask(RESUME, {"msgId": message_id}))
        assert answer.code == 0, answer.remark
        order.append(asks)

    async def second() -> None:
        assert (await other.ask(MAX_OFFSET, {"topic": "T", "queueId": 0})).code == 0
        order.append("another")

    async with asyncio.TaskGroup() as requests:
        requests.create_task(first())
        requests.create_task(second())

    assert order == ["another", asks]


async def test_nobody_is_asked_about_one_that_a_dead_broker_gave_up(desk: Desk) -> None:
    await send(desk)
    copied(desk, GIVEN_UP, desk.records(HALF)[0])
    await desk.restart()
    producer = await desk.producer("PG")
    desk.now += 60_000

    await desk.broker.check_backs.keep()

    assert [pushed for pushed in producer.pushed if pushed.code == CHECK] == []
    assert len(desk.broker.halves.undecided) == 0 and len(desk.records(HALF)) == 1


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
async def test_what_one_way_ends_say_counts_also_when_their_connections_close_at_once(
    desk: Desk, decision: int
) -> None:
    """As Java's producers end transactions; the broker reads first what was given up."""
    where = await send(desk)
    await give_up(desk)
    fill(desk, GIVEN_UP, 300)
    await desk.restart()
    producer = await desk.peer()

    fields = {"producerGroup": "PG", "msgId": "AC11", "fromTransactionCheck": "false", "commitOrRollback": decision}
    producer.tell(END, {**fields, **where})
    await producer.close()

    await until(lambda: len(desk.records(OP, REOPENED)) == 1)
    assert (await end(desk, where, COMMIT)).code == 0, "it is decided"
    assert delivered(desk) == ([b"half"] if decision == COMMIT else [])


async def test_others_are_served_while_a_new_master_reads_half_messages(desk: Desk) -> None:
    """Also the lease of its mastership: it is lost where the event loop stands still for seconds."""
    where = await send(desk)
    fill(desk, HALF, 3000, "\x02TRANSACTION_CHECK_TIMES\x011")
    fill(desk, GIVEN_UP, 3000)
    await become(desk, "brokerId=2\nbrokerRole=SLAVE")
    role, turns = desk.broker.role, 0
    await until(lambda: role.is_slave)

    change = asyncio.create_task(become(desk, "brokerRole=ASYNC_MASTER"))
    await role.due.wait()
    while role.is_slave:
        await asyncio.sleep(0)
        turns += 1
    await change

    assert turns > 3000 // AT_ONCE
    assert len(desk.broker.halves.undecided) == 3001
    assert (await desk.ask(SEND, message(), b"taken")).code == 0
    assert desk.broker.halves.settling, "sends are taken before all is read"
    assert (await end(desk, where, COMMIT)).code == 0
    assert delivered(desk) == [b"taken", b"half"]


async def become(desk: Desk, settings: str) -> None:
    """Have the broker change its role while it runs."""
    answer = await desk.ask(CHANGE, {}, settings.encode())
    assert answer.code == 0, answer.remark


async def test_a_slave_checks_no_half_message_again(desk: Desk) -> None:
    await send(desk)
    await give_up(desk)
    await become(desk, "brokerId=2\nbrokerRole=SLAVE")
    await until(lambda: desk.broker.role.is_slave)

    answer = await desk.ask(RESUME, {"msgId": desk.records(GIVEN_UP)[0].offset_message_id})

    assert answer.code == 11
    assert answer.remark is not None and "ask the master" in answer.remark
    assert len(desk.records(HALF)) == 1


async def test_what_the_store_refuses_to_end_is_ended_later_and_decided_once(desk: Desk) -> None:
    where = await send(desk)
    copied(desk, GIVEN_UP, desk.records(HALF)[0])  # by RocketMQ, which goes on behind it
    desk.broker.offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 1)
    await desk.restart()
    assert (await end(desk, where, ROLLBACK)).code == 0
    desk.broker.offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 0)
    await desk.restart()
    desk.broker.store.follow()  # as while the mastership is handed over

    await desk.broker.check_backs.keep()
    assert (await end(desk, where, COMMIT)).code == 14
    desk.broker.store.lead()  # that was refused
    await desk.broker.check_backs.keep()

    assert not desk.broker.halves.settling
    assert (await end(desk, where, COMMIT)).code == 0
    assert delivered(desk) == []


async def test_a_copy_is_decided_when_those_before_it_are_closed(desk: Desk) -> None:
    """A broker that is killed after that has no other copy which is open."""
    await send(desk)
    first = desk.records(HALF)[0]
    copied(desk, HALF, first, b"\x02TRANSACTION_CHECK_TIMES\x011")
    fill(desk, HALF, 3 * AT_ONCE, "\x02TRANSACTION_CHECK_TIMES\x011")
    fill(desk, GIVEN_UP, 1)
    await desk.restart()
    halves = desk.broker.halves

    settling = asyncio.create_task(halves.settled())
    while halves.settling:
        waiting = halves.looked_for(first)
        assert waiting is not None
        waiting.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    assert await settling and halves.looked_for(first) is None
