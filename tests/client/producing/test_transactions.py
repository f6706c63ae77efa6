"""Sending in transactions: what is stored, what is told when, and who answers the broker's questions."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from eruca.client import (
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from eruca.client.errors import BadConfig, BadMessage, BrokerRefused, UsageError
from eruca.client.producing.transactions import MAX_WAITING_CHECKS, Checks
from eruca.protocol import api
from eruca.protocol.headers.send import CheckTransactionState
from eruca.protocol.message import decode_properties
from eruca.protocol.record import encode_record
from eruca.standalone.cluster import Cluster
from tests.client.conftest import Seen, eventually, small_broker
from tests.support.scripted import Scripted

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(f"nobody should ask about {message}")


def test_the_states_are_those_of_the_wire() -> None:
    assert [state.value for state in (COMMIT, ROLLBACK, UNKNOWN)] == [8, 12, 0]


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOWN])
async def test_the_half_message_and_its_end(server: Scripted, state: TransactionState) -> None:
    ran: list[tuple[Message, str, int]] = []

    async def local(message: Message, transaction: str) -> TransactionState:
        ran.append((message, transaction, len(server.sends)))
        return state

    message = Message("T", b"x" * 5000, keys="k")
    async with TransactionProducer("g", never, nameserver=server.address) as producer:
        await producer.send(Message("T", b"plain"))
        result = await producer.send_in_transaction(message, local)
        await eventually(lambda: len(server.ends) == 1)

    assert (result.state, result.error, result.sent.status) == (state, None, SendStatus.SEND_OK)
    assert ran == [(message, result.transaction_id, 2)]
    header = server.sends[1]
    assert header.sys_flag == 0x304 | 1  # prepared, compressed by zlib
    assert decode_properties(header.properties.encode()) == {
        "UNIQ_KEY": result.transaction_id,
        "WAIT": "true",
        "KEYS": "k",
        "TRAN_MSG": "true",
        "PGROUP": "g",
    }
    (end,) = server.ends
    assert (end.producer_group, end.commit_or_rollback, end.from_transaction_check) == ("g", state.value, False)
    assert (end.tran_state_table_offset, end.commit_log_offset, end.msg_id) == (1, 1, result.transaction_id)


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_a_half_message_that_is_not_safe_is_rolled_back(server: Scripted, code: int) -> None:
    def local(message: Message, transaction: str) -> TransactionState:
        raise AssertionError("must not run")

    server.answers.append(code)
    async with TransactionProducer("g", never, nameserver=server.address) as producer:
        result = await producer.send_in_transaction(Message("T", b"x"), local)
        await eventually(lambda: len(server.ends) == 1)
    assert (result.state, result.error, result.sent.status.value) == (ROLLBACK, None, code)
    assert server.ends[0].commit_or_rollback == 12


async def test_a_half_message_that_is_refused_runs_nothing(server: Scripted) -> None:
    def local(message: Message, transaction: str) -> TransactionState:
        raise AssertionError("must not run")

    server.answers.append(13)
    async with TransactionProducer("g", never, nameserver=server.address) as producer:
        with pytest.raises(BrokerRefused):
            await producer.send_in_transaction(Message("T", b"x"), local)
    assert server.ends == []


async def test_a_local_transaction_that_fails_stays_undecided(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(message: Message, transaction: str) -> TransactionState:
        raise ArithmeticError("no money")

    def silent(message: Message, transaction: str) -> None:
        return None

    def wrong(message: Message, transaction: str) -> bool:
        return True

    async with TransactionProducer("g", never, nameserver=server.address) as producer:
        failed = await producer.send_in_transaction(Message("T", b"x"), broken)
        nothing = await producer.send_in_transaction(Message("T", b"x"), silent)
        odd = await producer.send_in_transaction(Message("T", b"x"), wrong)  # type: ignore[arg-type]
        await eventually(lambda: len(server.ends) == 3)
    assert [each.state for each in (failed, nothing, odd)] == [UNKNOWN] * 3
    assert isinstance(failed.error, ArithmeticError) and nothing.error is None
    assert str(odd.error) == (
        "A local transaction or a check returned a value of type bool: return TransactionState.COMMIT, ROLLBACK or "
        "UNKNOWN."
    )
    (told,) = (line for line in caplog.messages if "returned None" in line)
    assert told.endswith(
        "silent returned None, so its transaction stays undecided: return TransactionState.COMMIT, ROLLBACK or UNKNOWN"
    )
    assert [end.commit_or_rollback for end in server.ends] == [0, 0, 0]


async def test_functions_run_in_threads_and_coroutines_in_the_loop(server: Scripted) -> None:
    threads: list[int] = []

    def function(message: Message, transaction: str) -> TransactionState:
        threads.append(threading.get_ident())
        return COMMIT

    async def coroutine(message: Message, transaction: str) -> TransactionState:
        return function(message, transaction)

    async with TransactionProducer("g", never, nameserver=server.address) as producer:
        await producer.send_in_transaction(Message("T", b"x"), function)
        await producer.send_in_transaction(Message("T", b"x"), coroutine)
    assert threads[0] != threading.get_ident() and threads[1] == threading.get_ident()


async def test_wrong_use_is_told_at_the_call(server: Scripted) -> None:
    with pytest.raises(UsageError, match="check is of type NoneType: a function or a coroutine function is expected"):
        TransactionProducer("g", None, nameserver=server.address)  # type: ignore[arg-type]
    with pytest.raises(BadConfig, match="check_concurrency=0"):
        TransactionProducer("g", never, check_concurrency=0, nameserver=server.address)
    async with TransactionProducer("g", never, nameserver=server.address) as producer:
        with pytest.raises(UsageError, match="local is of type bytes"):
            await producer.send_in_transaction(Message("T", b"x"), b"")  # type: ignore[arg-type]
        with pytest.raises(BadMessage, match="cannot be delayed"):
            await producer.send_in_transaction(Message("T", b"x", delay_level=3), lambda *_: COMMIT)
    assert server.sends == []


async def test_a_stop_waits_for_transactions_under_way(server: Scripted) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def local(message: Message, transaction: str) -> TransactionState:
        began.set()
        await release.wait()
        return COMMIT

    async with TransactionProducer("g", never, nameserver=server.address, send_timeout=30) as producer:
        under_way = asyncio.create_task(producer.send_in_transaction(Message("T", b"x"), local))
        await began.wait()
        stopping = asyncio.create_task(producer.stop())
        assert not (await asyncio.wait([stopping], timeout=0.2))[0]
        release.set()
        result = await under_way
        await stopping
        await eventually(lambda: len(server.ends) == 1)
    assert (result.state, server.ends[0].commit_or_rollback) == (COMMIT, 8)


async def test_a_transaction_that_outlives_its_producer_says_what_it_decided(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def local(message: Message, transaction: str) -> TransactionState:
        began.set()
        await release.wait()
        return COMMIT

    async with TransactionProducer("g", never, nameserver=server.address, send_timeout=0.1) as producer:
        under_way = asyncio.create_task(producer.send_in_transaction(Message("T", b"x"), local, timeout=30))
        await began.wait()
    release.set()
    result = await under_way
    assert result.state is COMMIT and server.ends == []
    assert f"the end of transaction {result.transaction_id} could not be sent, the broker will check" in caplog.text


def question(server: Scripted, group: str = "g") -> None:
    """The broker asks about a half message of the group, on the connection it has."""
    half = encode_record(
        topic="T",
        queue_id=0,
        queue_offset=7,
        physical_offset=700,
        body=b"half",
        properties=f"UNIQ_KEY\x01KEY\x02PGROUP\x01{group}\x02TRAN_MSG\x01true".encode(),
        flag=0,
        sys_flag=4,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=2,
        store_host=bytes(8),
    )
    (connection,) = (each for each in server.connections if not each.closed)
    header = CheckTransactionState(tran_state_table_offset=5, commit_log_offset=600, transaction_id="KEY")
    connection.oneway(api.CHECK_TRANSACTION_STATE, header, half)


async def test_questions_are_answered_where_they_come_from(server: Scripted) -> None:
    asked: list[ReceivedMessage] = []
    answers: list[object] = [COMMIT, ROLLBACK, UNKNOWN, None, "yes", LookupError("unknown order")]

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        answer = answers[len(asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    async with TransactionProducer("g", check, nameserver=server.address) as producer:
        await producer.send(Message("T", b"x"))
        for _ in answers:
            question(server)
        question(server, "stranger")
        await eventually(lambda: len(server.ends) == len(answers))
    assert [end.commit_or_rollback for end in server.ends] == [8, 12, 0, 0, 0, 0]
    end = server.ends[0]
    assert (end.producer_group, end.from_transaction_check, end.msg_id) == ("g", True, "KEY")
    assert (end.tran_state_table_offset, end.commit_log_offset, end.transaction_id) == (5, 600, "KEY")
    assert {message.message_id for message in asked} == {"KEY"}


async def test_a_check_that_is_cancelled_by_what_it_awaits_is_one_that_failed(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0

    async def check(message: ReceivedMessage) -> TransactionState:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise asyncio.CancelledError("a task of its own")
        return COMMIT

    async with TransactionProducer("g", check, nameserver=server.address) as producer:
        await producer.send(Message("T", b"x"))
        question(server)
        question(server)
        await eventually(lambda: len(server.ends) == 2)
    assert [end.commit_or_rollback for end in server.ends] == [0, 8]
    assert "The function was cancelled by what it awaited" in caplog.text


async def test_a_broker_that_goes_before_it_is_answered_is_a_warning(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        began.set()
        await release.wait()
        return COMMIT

    async with TransactionProducer("g", check, nameserver=server.address) as producer:
        await producer.send(Message("T", b"x"))
        question(server)
        await began.wait()
        await server.stop()
        await eventually(lambda: not producer.session.channels.addresses())
        release.set()
        await eventually(lambda: "a check of a transaction of g could not be answered" in caplog.text)
    assert "Traceback" not in caplog.text


async def test_one_check_at_a_time_and_no_more_than_may_wait(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    going, release = 0, asyncio.Event()
    most = 0

    async def check(message: ReceivedMessage) -> TransactionState:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await release.wait()
        going -= 1
        return COMMIT

    async with TransactionProducer("g", check, nameserver=server.address) as producer:
        await producer.send(Message("T", b"x"))
        question(server)
        await eventually(lambda: going == 1)
        for _ in range(MAX_WAITING_CHECKS + 1):
            question(server)
        await eventually(lambda: f"is ignored, as {MAX_WAITING_CHECKS} others wait" in caplog.text)
        release.set()
        await eventually(lambda: len(server.ends) == 1 + MAX_WAITING_CHECKS)
    assert most == 1


async def test_a_producer_that_stopped_is_not_asked(server: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    async with Producer("g", nameserver=server.address) as other:
        async with TransactionProducer("g", never, nameserver=server.address) as producer:
            await producer.send(Message("T", b"x"))
            assert isinstance(producer.session.transactional["g"][0], Checks)
        await other.send(Message("T", b"x"))
        question(server)
        await eventually(lambda: "checks a transaction of group g, which has no producer here" in caplog.text)
    assert server.ends == []


async def test_a_broker_keeps_what_is_not_committed(tmp_path: Path, seen: Seen) -> None:
    """Committed, rolled back, and undecided ones of which the check, of another producer, commits one."""
    config = small_broker()
    config.transaction_check_interval = config.transaction_time_out = 100
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT if b"commit" in message.body else ROLLBACK

    def fails(message: Message, transaction: str) -> TransactionState:
        raise ArithmeticError("no money")

    async with Cluster(tmp_path, broker=config) as cluster:
        async with TransactionProducer("g", never, nameserver=cluster.address) as producer:
            first = await producer.send_in_transaction(Message("T", b"committed", tags="t"), lambda *_: COMMIT)
            await producer.send_in_transaction(Message("T", b"rolled back"), lambda *_: ROLLBACK)
            await producer.send_in_transaction(
                Message("T", b"to commit", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}), lambda *_: UNKNOWN
            )
            await producer.send_in_transaction(
                Message("T", b"to forget", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}), fails
            )
        async with (
            TransactionProducer("g", check, nameserver=cluster.address),
            PushConsumer("c", seen.coroutine, nameserver=cluster.address, start_from="first").subscribe("T"),
        ):
            await seen.reaches(2)
            await eventually(lambda: len(asked) == 2)
    assert sorted(seen.bodies) == [b"committed", b"to commit"]
    assert sorted(asked) == [b"to commit", b"to forget"]
    (message,) = (each for each in seen.messages if each.body == b"committed")
    assert (message.message_id, message.tags) == (first.transaction_id, "t")
