"""Transactions: half messages, their ends (37), the questions to producers (39), and asking again (323)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from eruca.broker.config import BrokerRole, FlushDiskType
from eruca.protocol.codes import ResponseCode
from eruca.protocol.record import Record, decode_record
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
    UNKNOWN,
    end,
    half,
    place,
    send,
)
from tests.support.peers import Peer
from tests.support.sends import message

GROUP = "CID_RMQ_SYS_TRANS"
Prepared = Callable[[Callable[[Desk], None]], Awaitable[Desk]]


def asked_for(pushed: dict[str, str]) -> dict[str, object]:
    return {name: pushed[name] for name in ("tranStateTableOffset", "commitLogOffset")}


async def checked(desk: Desk, producer: Peer, after: int = 60_000) -> tuple[dict[str, object], Record]:
    """One round of questions ``after`` ms; where the asked half message is, and the message in the question."""
    desk.now += after
    await desk.broker.check_backs.round()
    (pushed,) = await producer.received(CHECK)
    return asked_for(pushed.fields), decode_record(pushed.body)


# ---------------------------------------------------------------------- storing


async def test_a_half_message_is_kept_from_consumers(desk: Desk) -> None:
    desk.topic("T")

    answer = await desk.ask(SEND, half(), b"half")

    assert (answer.code, answer.fields["queueOffset"], answer.fields["queueId"]) == (0, "0", "0")
    assert desk.records("T") == []
    (record,) = desk.records(HALF)
    assert (record.sys_flag, record.queue_id, record.prepared_transaction_offset) == (0, 0, 0)
    assert record.properties == {
        **{"TRAN_MSG": "true", "UNIQ_KEY": "AC11", "PGROUP": "PG", "WAIT": "true", "TAGS": "TagT"},
        **{"CLUSTER": "Lab", "REAL_TOPIC": "T", "REAL_QID": "0"},
    }
    assert answer.fields["msgId"] == record.offset_message_id
    assert desk.broker.topics.table[HALF].write_queue_nums == 1
    assert OP not in desk.broker.topics


async def test_what_only_the_broker_writes_is_not_taken_from_a_sender(desk: Desk) -> None:
    await send(
        desk, "K", "TRANSACTION_CHECK_TIMES\x0114", "TRAN_PREPARED_QUEUE_OFFSET\x010", "DELAY\x013", "REAL_TOPIC\x01X"
    )

    (record,) = desk.records(HALF)
    assert record.properties["REAL_TOPIC"] == "T"
    assert record.properties.keys().isdisjoint({"TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "DELAY"})


async def test_a_broker_may_refuse_transactions(desk: Desk) -> None:
    desk.topic("T")
    desk.config.reject_transaction_message = True

    answer = await desk.ask(SEND, half(), b"half")

    assert (answer.code, answer.remark) == (16, "the broker[127.0.0.1] sending transaction message is forbidden")
    assert desk.records(HALF) == []


async def test_a_message_consumed_before_is_no_half_message(desk: Desk) -> None:
    """A committed message keeps TRAN_MSG; one that a consumer sends back is not a transaction."""
    desk.broker.groups.find("G")
    retry = half("K", "DELAY\x013", b="%RETRY%G", j=1)

    assert (await desk.ask(SEND, retry, b"x")).code == 0

    assert desk.records(HALF) == []


# ---------------------------------------------------------------------- ending


async def test_a_commit_stores_the_message_and_closes_the_half(desk: Desk) -> None:
    where = await send(desk)
    desk.now += 700

    answer = await end(desk, where, COMMIT)

    assert (answer.code, answer.remark) == (0, None)
    (before,), (record,), (op,) = desk.records(HALF), desk.records("T"), desk.records(OP)
    assert (record.sys_flag, record.prepared_transaction_offset) == (8, before.physical_offset)
    assert (record.body, record.properties_text, record.flag) == (b"half", before.properties_text, before.flag)
    assert (record.born_timestamp, record.born_host) == (before.born_timestamp, before.born_host)
    assert record.store_timestamp == START + 700
    assert (op.body, op.properties_text, op.sys_flag, op.flag) == (b"0", b"WAIT\x01true\x02TAGS\x01d", 0, 0)
    assert op.born_host == op.store_host == desk.broker.store_host
    assert op.physical_offset > record.physical_offset, "were it lost, the message would be asked about, not lost"
    unit = desk.broker.store.unit("T", 0, 0)
    assert unit is not None and unit[2] != 0, "the tag can be subscribed"


async def test_a_consumer_gets_a_committed_message_at_once(desk: Desk) -> None:
    where = await send(desk)
    hold = desk.broker.holds.enter("T", 0, "somebody", 30.0)
    assert hold is not None

    await end(desk, where, COMMIT)

    await hold
    assert len(desk.records("T")) == 1


async def test_a_rollback_only_closes_the_half(desk: Desk) -> None:
    where = await send(desk)

    answer = await end(desk, where, ROLLBACK)

    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert desk.records("T") == []
    assert [op.body for op in desk.records(OP)] == [b"0"]


async def test_what_is_decided_stays_decided(desk: Desk) -> None:
    """RocketMQ stores a message for each commit, and after a rollback too."""
    committed, rolled_back = await send(desk, "K1"), await send(desk, "K2")
    await end(desk, committed, COMMIT)
    await end(desk, rolled_back, ROLLBACK)

    answers = [await end(desk, where, state) for where in (committed, rolled_back) for state in (COMMIT, ROLLBACK)]

    assert [answer.code for answer in answers] == [0, 0, 0, 0]
    assert [record.unique_key for record in desk.records("T")] == ["K1"]
    assert len(desk.records(OP)) == 2


async def test_an_undecided_end_has_no_answer(desk: Desk) -> None:
    where = await send(desk)

    with pytest.raises(TimeoutError):
        await desk.ask(END, {"producerGroup": "PG", "msgId": "A", "commitOrRollback": UNKNOWN, **where}, within=0.2)

    assert desk.records(OP) == []


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"producerGroup": "Other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 5}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 3}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commitOrRollback": 5}, "commitOrRollback is 5: it is 8 to commit, 12 to roll back, 0 for undecided"),
    ],
)
async def test_an_end_that_does_not_fit_is_refused(desk: Desk, wrong: dict[str, object], remark: str) -> None:
    where = await send(desk)

    answer = await end(desk, where, COMMIT, **wrong)

    assert (answer.code, answer.remark) == (1, remark)
    assert desk.records("T") == desk.records(OP) == []


async def test_only_half_messages_can_be_ended(desk: Desk) -> None:
    desk.topic("T")
    sent = await desk.ask(SEND, message(i="PGROUP\x01PG\x02REAL_TOPIC\x01T\x02REAL_QID\x010"), b"plain")

    answer = await end(desk, place(sent), COMMIT)

    assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
    assert len(desk.records("T")) == 1


async def test_a_slave_ends_nothing(prepared: Prepared) -> None:
    def as_slave(desk: Desk) -> None:
        desk.config.broker_id = 1
        desk.config.store.broker_role = BrokerRole.SLAVE

    desk = await prepared(as_slave)

    answer = await end(desk, {"tranStateTableOffset": 0, "commitLogOffset": 0}, COMMIT)

    assert answer.code == 11


async def test_with_a_synchronous_disk_an_end_is_answered_when_it_is_safe(prepared: Prepared) -> None:
    def synchronous(desk: Desk) -> None:
        desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    desk = await prepared(synchronous)
    where = await send(desk)

    answer = await end(desk, where, COMMIT)

    assert answer.code == 0
    figures = desk.broker.store.figures()
    assert figures.flushed_offset == figures.max_offset


async def test_a_full_disk_leaves_it_undecided(desk: Desk) -> None:
    where = await send(desk)
    desk.fill_disk()
    answer = await end(desk, where, COMMIT)
    assert (answer.code, answer.remark) == (14, "Service not available now.")

    desk.fill_disk(full=False)
    assert (await end(desk, where, COMMIT)).code == 0
    assert len(desk.records("T")) == 1


async def test_without_room_for_its_op_message_none_is_asked_about_or_given_up(desk: Desk) -> None:
    """Its copy would stand beside it, and both would be decided: one now, the other by the next broker."""
    desk.broker.store.appender.retry_after = 0
    await send(desk, "OLD", "CHECK_IMMUNITY_TIME_IN_SECONDS\x0186400", body=b"old")
    where = await send(desk, "K")
    producer = await desk.producer("PG")
    desk.leave_room(350)
    with desk.disk.without_room("commitlog"):
        desk.now += 60_000
        await desk.broker.check_backs.round()
        again = await desk.ask(RESUME, {"msgId": desk.records(HALF)[1].offset_message_id})
        assert again.code == ResponseCode.SYSTEM_ERROR, again
        checks, desk.config.transaction_check_max = desk.config.transaction_check_max, 0
        await desk.broker.check_backs.round()
        desk.config.transaction_check_max = checks
    assert [record.body for record in desk.records(HALF)] == [b"old", b"half"]
    assert desk.records(GIVEN_UP) == []

    place_of_copy, _ = await checked(desk, producer)
    assert (await end(desk, place_of_copy, ROLLBACK)).code == 0
    await desk.restart()
    assert (await end(desk, where, COMMIT)).code == 0
    assert desk.records("T") == []


async def test_one_that_is_larger_than_maxmessagesize_of_today_is_checked_and_committed(desk: Desk) -> None:
    big = await send(desk, "BIG", body=b"x" * 200_000)
    small = await send(desk, "SMALL", body=b"small")
    desk.config.store.max_message_size = 100_000
    await desk.restart()
    producer = await desk.producer("PG")
    desk.now += 60_000
    await desk.broker.check_backs.round()
    asked = await producer.received(CHECK, 2)
    assert [decode_record(each.body).unique_key for each in asked] == ["BIG", "SMALL"]
    assert [(await end(desk, each, COMMIT)).code for each in (big, small)] == [0, 0]
    assert [len(record.body) for record in desk.records("T")] == [200_000, 5]


# ---------------------------------------------------------------------- asking


async def test_an_undecided_transaction_is_asked_about(desk: Desk) -> None:
    producer = await desk.producer("PG")
    await send(desk, "K1")

    where, asked = await checked(desk, producer)

    assert (asked.topic, asked.queue_id, asked.body, asked.unique_key) == ("T", 0, b"half", "K1")
    first, copy = desk.records(HALF)
    assert where == {"tranStateTableOffset": "1", "commitLogOffset": str(copy.physical_offset)}
    assert copy.properties == {**first.properties, "TRANSACTION_CHECK_TIMES": "1"}
    assert (copy.flag, copy.sys_flag, copy.born_timestamp) == (first.flag, 0, first.born_timestamp)
    assert [op.body for op in desk.records(OP)] == [b"0"], "the first copy is done with"
    assert (await end(desk, where, COMMIT, fromTransactionCheck="true")).code == 0
    assert [record.body for record in desk.records("T")] == [b"half"]
    assert len(desk.broker.halves.undecided) == 0


async def test_the_question_names_the_transaction(desk: Desk) -> None:
    producer = await desk.producer("PG")
    await send(desk, "K1")
    desk.now += 6000

    await desk.broker.check_backs.round()

    (pushed,) = await producer.received(CHECK)
    assert pushed.oneway
    assert (pushed.fields["msgId"], pushed.fields["transactionId"]) == ("K1", "K1")
    assert int(pushed.fields["offsetMsgId"][16:], 16) == int(pushed.fields["commitLogOffset"])


async def test_a_young_transaction_is_left_alone(desk: Desk) -> None:
    producer = await desk.producer("PG")
    await send(desk)

    desk.now += 5999
    await desk.broker.check_backs.round()
    assert len(desk.records(HALF)) == 1
    desk.now += 1
    await desk.broker.check_backs.round()

    assert len(await producer.received(CHECK)) == 1


async def test_the_producers_clock_does_not_matter(desk: Desk) -> None:
    desk.topic("T")
    for key, born in (("early", START - 3_600_000), ("late", START + 3_600_000)):
        await desk.ask(SEND, half(key, g=born), b"x")
    producer = await desk.producer("PG")

    desk.now += 5000
    await desk.broker.check_backs.round()
    assert len(desk.records(HALF)) == 2
    desk.now += 1000
    await desk.broker.check_backs.round()

    assert len(await producer.received(CHECK, 2)) == 2


async def test_a_decision_in_time_is_not_asked_about(desk: Desk) -> None:
    await desk.producer("PG")
    for n in range(10):
        where = await send(desk, f"K{n}")
        if n % 2:
            await end(desk, where, COMMIT)

    desk.now += 60_000
    await desk.broker.check_backs.round()

    asked = [record.unique_key for record in desk.records(HALF)[10:]]
    assert asked == ["K0", "K2", "K4", "K6", "K8"]


async def test_the_members_of_a_group_are_asked_in_turn(desk: Desk) -> None:
    producers = [await desk.producer("PG", client_id=f"p{n}") for n in range(3)]
    await desk.producer("Other")
    for n in range(6):
        await send(desk, f"K{n}")

    desk.now += 60_000
    await desk.broker.check_backs.round()

    for producer in producers:
        assert len(await producer.received(CHECK, 2)) == 2


async def test_a_late_decision_that_names_the_first_copy_ends_the_questions(desk: Desk) -> None:
    producer = await desk.producer("PG")
    where = await send(desk)
    await checked(desk, producer)
    await checked(desk, producer)

    assert (await end(desk, where, COMMIT)).code == 0

    desk.now += 60_000
    await desk.broker.check_backs.round()
    assert len(desk.records(HALF)) == 3
    assert len(desk.records("T")) == 1


async def test_the_answer_to_a_question_that_crossed_the_decision_changes_nothing(desk: Desk) -> None:
    producer = await desk.producer("PG")
    where = await send(desk)
    asked, _ = await checked(desk, producer)
    await end(desk, where, ROLLBACK)

    assert (await end(desk, asked, COMMIT, fromTransactionCheck="true")).code == 0

    assert desk.records("T") == []


async def test_while_no_producer_is_there_no_check_is_used_up(desk: Desk) -> None:
    await send(desk)
    for _ in range(20):
        desk.now += 60_000
        await desk.broker.check_backs.round()
    assert len(desk.records(HALF)) == 1
    producer = await desk.producer("PG")

    _, asked = await checked(desk, producer)

    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_immunity_keeps_questions_away_and_uses_up_no_checks(desk: Desk) -> None:
    producer = await desk.producer("PG")
    await send(desk, "K1", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600")
    for _ in range(9):
        desk.now += 60_000
        await desk.broker.check_backs.round()
    assert len(desk.records(HALF)) == 1

    _, asked = await checked(desk, producer)

    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_after_fifteen_checks_it_is_given_up(desk: Desk) -> None:
    producer = await desk.producer("PG")
    await send(desk, "K1")
    for _ in range(15):
        await checked(desk, producer)

    desk.now += 60_000
    await desk.broker.check_backs.round()

    (given_up,) = desk.records(GIVEN_UP)
    assert (given_up.body, given_up.properties["TRANSACTION_CHECK_TIMES"]) == (b"half", "15")
    assert given_up.properties["REAL_TOPIC"] == "T"
    assert desk.broker.topics.table[GIVEN_UP].write_queue_nums == 1
    assert len(desk.broker.halves.undecided) == 0
    assert producer.pushed == []


@pytest.mark.parametrize("place", ["REAL_TOPIC\x01" + "T" * 128, "REAL_QID\x012147483648", "REAL_QID\x01" + "9" * 5000])
async def test_a_half_message_of_another_store_with_a_place_that_none_can_have_is_given_up(
    desk: Desk, place: str
) -> None:
    """The other half messages are asked about."""
    desk.topic("T")
    desk.store(HALF, 0, 0, properties=f"TRAN_MSG\x01true\x02UNIQ_KEY\x01odd\x02PGROUP\x01PG\x02{place}".encode())
    desk.now += 1000
    await desk.restart()
    producer = await desk.producer("PG")
    await send(desk, "K1")
    _, asked_about = await checked(desk, producer)
    assert asked_about.unique_key == "K1"
    assert [record.unique_key for record in desk.records(GIVEN_UP)] == ["odd"]
    assert desk.broker.tasks.fault is None


async def test_a_decision_for_what_was_given_up_still_counts(desk: Desk) -> None:
    producer = await desk.producer("PG")
    desk.config.transaction_check_max = 1
    where = await send(desk)
    await checked(desk, producer)
    desk.now += 60_000
    await desk.broker.check_backs.round()
    assert len(desk.records(GIVEN_UP)) == 1
    await desk.restart()

    assert (await end(desk, where, COMMIT)).code == 0
    assert (await end(desk, where, COMMIT)).code == 0

    assert [record.body for record in desk.records("T")] == [b"half"]


async def given_up(desk: Desk) -> tuple[dict[str, object], Record]:
    """A half message that was given up: what ends it, and its record in the topic of those."""
    producer = await desk.producer("PG")
    desk.config.transaction_check_max = 1
    where = await send(desk, "K1")
    await checked(desk, producer)
    desk.now += 60_000
    await desk.broker.check_backs.round()
    (record,) = desk.records(GIVEN_UP)
    return where, record


@pytest.mark.parametrize(("decision", "delivered"), [(COMMIT, [b"half"]), (ROLLBACK, [])])
async def test_what_was_decided_after_it_was_given_up_stays_decided_after_a_restart(
    desk: Desk, decision: int, delivered: list[bytes]
) -> None:
    where, record = await given_up(desk)
    assert (await end(desk, where, decision)).code == 0
    for _ in range(2):
        await desk.restart()
        assert (await end(desk, where, COMMIT)).code == 0
        asked = await desk.ask(RESUME, {"msgId": record.offset_message_id})
        assert asked.code == 1 and asked.remark is not None and "is committed or rolled back" in asked.remark
    assert [record.body for record in desk.records("T")] == delivered
    assert len(desk.broker.halves.undecided) == 0


async def test_what_was_asked_about_again_and_decided_stays_decided_after_a_restart(desk: Desk) -> None:
    where, record = await given_up(desk)
    assert (await desk.ask(RESUME, {"msgId": record.offset_message_id})).code == 0
    await desk.restart()
    asked, _ = await checked(desk, await desk.producer("PG"))
    assert (await end(desk, asked, COMMIT)).code == 0
    await desk.restart()
    assert [(await end(desk, each, COMMIT)).code for each in (asked, where)] == [0, 0]
    assert (await desk.ask(RESUME, {"msgId": record.offset_message_id})).code == 1
    assert [record.body for record in desk.records("T")] == [b"half"]


async def test_what_is_older_than_the_log_keeps_is_given_up(desk: Desk) -> None:
    await send(desk)

    desk.now += 72 * 3_600_000 + 1
    await desk.broker.check_backs.round()

    assert len(desk.records(GIVEN_UP)) == 1


async def test_a_round_comes_with_each_interval(desk: Desk) -> None:
    producer = await desk.producer("PG")
    await send(desk)
    await desk.broker.check_backs.keep()
    desk.now += 59_999
    await desk.broker.check_backs.keep()
    assert len(desk.records(HALF)) == 1

    desk.now += 1
    await desk.broker.check_backs.keep()

    assert len(await producer.received(CHECK)) == 1


async def test_nobody_is_asked_while_no_message_is_admitted(desk: Desk) -> None:
    """As below minInSyncReplicas: the producer's answer would be refused, and its checks be used up by that."""
    producer = await desk.producer("PG")
    await send(desk)
    desk.broker.admission.suspend("too few", ResponseCode.SYSTEM_ERROR)
    for _ in range(3):
        desk.now += 60_000
        await desk.broker.check_backs.keep()
    assert len(desk.records(HALF)) == 1

    desk.broker.admission.resume(ResponseCode.SYSTEM_ERROR)
    await desk.broker.check_backs.keep()

    (pushed,) = await producer.received(CHECK)
    assert decode_record(pushed.body).properties["TRANSACTION_CHECK_TIMES"] == "1"


# ---------------------------------------------------------------------- asking again


async def test_what_was_given_up_can_be_asked_about_again(desk: Desk) -> None:
    producer = await desk.producer("PG")
    desk.config.transaction_check_max = 1
    await send(desk, "K1")
    await checked(desk, producer)
    desk.now += 60_000
    await desk.broker.check_backs.round()
    (given_up,) = desk.records(GIVEN_UP)

    assert (await desk.ask(RESUME, {"msgId": given_up.offset_message_id})).code == 0

    where, asked = await checked(desk, producer)
    assert (asked.unique_key, asked.properties["TRANSACTION_CHECK_TIMES"]) == ("K1", "1")
    assert (await end(desk, where, COMMIT)).code == 0
    assert len(desk.records("T")) == 1


async def test_with_a_synchronous_disk_it_is_answered_when_the_message_is_safe(prepared: Prepared) -> None:
    def synchronous(desk: Desk) -> None:
        desk.config.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    desk = await prepared(synchronous)
    await send(desk, "K1")
    (first,) = desk.records(HALF)
    before = desk.broker.store.figures().max_offset

    for _ in range(2):  # the second time it may be what is not safe yet
        assert (await desk.ask(RESUME, {"msgId": first.offset_message_id})).code == 0
        figures = desk.broker.store.figures()
        assert figures.flushed_offset == figures.max_offset > before


async def test_only_half_messages_can_be_asked_about_again(desk: Desk) -> None:
    desk.topic("T")
    sent = await desk.ask(SEND, message(), b"plain")

    plain = await desk.ask(RESUME, {"msgId": sent.fields["msgId"]})
    bad = await desk.ask(RESUME, {"msgId": "zz"})

    assert (plain.code, bad.code) == (1, 1)
    assert plain.remark is not None and "there is no half message at msgId" in plain.remark
    assert desk.records(HALF) == []


async def test_what_is_decided_is_not_asked_about_again(desk: Desk) -> None:
    """4.9.7 asks about it again, and the producer's answer would decide it a second time."""
    where = await send(desk, "K1")
    (record,) = desk.records(HALF)
    assert (await end(desk, where, ROLLBACK)).code == 0

    asked = await desk.ask(RESUME, {"msgId": record.offset_message_id})

    assert asked.code == 1
    assert len(desk.broker.halves.undecided) == 0


async def test_one_that_was_put_back_is_asked_about_and_ended_also_while_nobody_may_see_it(desk: Desk) -> None:
    """As long as slaves lack it, or the syncStateSet is below its minimum."""
    where = await send(desk, "K1")
    desk.broker.store.drain()
    desk.broker.store.show(desk.broker.store.figures().max_offset)
    producer = await desk.producer("PG")

    asked = [await checked(desk, producer) for _ in range(3)]

    assert [record.unique_key for _, record in asked] == ["K1"] * 3
    assert len(desk.broker.halves.undecided) == 1
    assert (await end(desk, asked[-1][0], ROLLBACK)).code == 0
    assert (await end(desk, where, COMMIT)).code == 0, "it is decided"
    desk.broker.store.show(desk.broker.store.figures().max_offset)
    assert desk.records("T") == []


# ---------------------------------------------------------------------- progress and restarts


async def test_progress_is_published_once_the_log_is_on_disk(desk: Desk) -> None:
    for n in range(3):
        await end(desk, await send(desk, f"K{n}"), COMMIT)
    await send(desk, "K3")
    desk.broker.store.drain()
    desk.broker.halves.keep()
    assert desk.broker.offsets.query(GROUP, HALF, 0) == -1, "nothing of it was flushed yet"

    desk.broker.store.flush()
    desk.broker.halves.keep()

    assert (desk.broker.offsets.query(GROUP, HALF, 0), desk.broker.offsets.query(GROUP, OP, 0)) == (3, 3)


async def test_progress_is_published_once_readers_may_see_the_log(desk: Desk) -> None:
    """The next master may lack what nobody may see yet: the half message would be decided for it."""
    where = await send(desk, "K1")
    desk.broker.store.drain()
    desk.broker.store.show(desk.broker.store.figures().max_offset)
    await end(desk, where, ROLLBACK)
    for _ in range(3):
        desk.broker.store.flush()
        desk.broker.halves.keep()
    assert desk.broker.offsets.query(GROUP, HALF, 0) == -1

    desk.broker.store.show(desk.broker.store.figures().max_offset)
    for _ in range(2):
        desk.broker.store.drain()
        desk.broker.halves.keep()

    assert (desk.broker.offsets.query(GROUP, HALF, 0), desk.broker.offsets.query(GROUP, OP, 0)) == (1, 1)


async def test_after_a_restart_everything_is_as_it_was(desk: Desk) -> None:
    committed, rolled_back, open_ = [await send(desk, key) for key in ("K1", "K2", "K3")]
    await end(desk, committed, COMMIT)
    await end(desk, rolled_back, ROLLBACK)
    await desk.restart()
    producer = await desk.producer("PG")

    for where in (committed, rolled_back):
        assert (await end(desk, where, COMMIT)).code == 0
    where, asked = await checked(desk, producer)

    assert asked.unique_key == "K3"
    await desk.restart()
    assert (await end(desk, open_, COMMIT)).code == 0
    assert (await end(desk, where, COMMIT)).code == 0
    assert [record.unique_key for record in desk.records("T")] == ["K1", "K3"]


async def test_progress_that_a_cut_log_does_not_bear_out_is_not_trusted(desk: Desk) -> None:
    await end(desk, await send(desk, "K1"), COMMIT)
    await send(desk, "K2")
    desk.broker.offsets.commit(GROUP, HALF, 0, 500)
    desk.broker.offsets.commit(GROUP, OP, 0, 1)

    await desk.restart()

    undecided = [half.identity for _, half in desk.broker.halves.undecided.items()]
    assert [identity[0] for identity in undecided if identity] == ["K2"]


async def test_one_that_stays_undecided_does_not_hold_up_the_next_start(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(desk, "old", "CHECK_IMMUNITY_TIME_IN_SECONDS\x013600")
    for n in range(20):
        await end(desk, await send(desk, f"K{n}"), COMMIT)
    desk.broker.store.drain()

    monkeypatch.setattr("eruca.broker.services.halves.LAG", 10)  # from here on: the broker keeps by itself, too
    for _ in range(3):
        desk.broker.halves.keep()
        desk.broker.store.flush()
        desk.broker.store.drain()

    assert desk.broker.offsets.query(GROUP, HALF, 0) == 21
    await desk.restart()
    (only,) = desk.broker.halves.undecided.items()
    assert (only[0], only[1].identity and only[1].identity[0], only[1].immunity) == (21, "old", 3_600_000)


async def test_copies_that_rocketmq_put_back_in_immunity_are_one_transaction(desk: Desk) -> None:
    """4.9.7 leaves no op message for the first copy, and names it in TRAN_PREPARED_QUEUE_OFFSET."""
    where = await send(desk, "K1", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600")
    (first,) = desk.records(HALF)
    copied = first.properties_text + b"\x02TRANSACTION_CHECK_TIMES\x011\x02TRAN_PREPARED_QUEUE_OFFSET\x010"
    desk.broker.store.appender.put(
        HALF,
        0,
        first.body,
        copied,
        born_timestamp=first.born_timestamp,
        born_host=first.born_host,
        store_host=first.store_host,
    )
    await desk.restart()
    assert [offset for offset, _ in desk.broker.halves.undecided.items()] == [2]
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in desk.records(HALF)[2].properties

    assert (await end(desk, where, COMMIT)).code == 0

    await desk.restart()
    assert desk.broker.halves.undecided.items() == []
    assert len(desk.records("T")) == 1


async def test_an_end_that_rocketmq_took_closes_the_copies_it_had_put_back(desk: Desk) -> None:
    await send(desk, "K1", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600")
    (first,) = desk.records(HALF)
    copied = first.properties_text + b"\x02TRANSACTION_CHECK_TIMES\x011\x02TRAN_PREPARED_QUEUE_OFFSET\x010"
    for topic, body, text in ((HALF, first.body, copied), (OP, b"0", b"WAIT\x01true\x02TAGS\x01d")):
        desk.broker.store.appender.put(
            topic,
            0,
            body,
            text,
            born_timestamp=first.born_timestamp,
            born_host=first.born_host,
            store_host=first.store_host,
        )

    await desk.restart()

    assert desk.broker.halves.undecided.items() == []


async def test_cleaning_up_topics_leaves_the_queue_of_ends(desk: Desk) -> None:
    await end(desk, await send(desk), COMMIT)
    assert (await desk.ask(316)).code == 0
    assert len(desk.records(OP)) == 1
