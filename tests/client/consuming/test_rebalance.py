"""Where a group begins, what comes of messages that were not consumed, and what brokers learn of a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Literal

import pytest

from eruca.client import ClientSettings, Later, LitePullConsumer, PullConsumer, PushConsumer
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.push_consumer import engine_of
from eruca.client.consuming.retry_policy import RetryPolicy
from eruca.client.consuming.send_back import SendBack, retry_header
from eruca.client.errors import UsageError
from eruca.client.message import ReceivedMessage
from eruca.client.network.session import Session
from eruca.protocol.message import decode_properties
from eruca.protocol.queues import MessageQueue
from tests.client.conftest import HASTY, eventually, member_of
from tests.support.received import record
from tests.support.scripted import Scripted


@pytest.fixture
def server(server: Scripted) -> Scripted:
    server.knows("%RETRY%g", server)
    server.bounds = {"min": 3, "max": 90, "time": 50}
    return server


@pytest.mark.parametrize(
    ("start_from", "offset", "retry", "where"),
    [
        ("first", 3, 3, "CONSUME_FROM_FIRST_OFFSET"),
        ("last", 90, 3, "CONSUME_FROM_LAST_OFFSET"),
        (1_700_000_000_000, 50, 90, "CONSUME_FROM_TIMESTAMP"),
        (datetime(2026, 11, 21, tzinfo=UTC), 50, 90, "CONSUME_FROM_TIMESTAMP"),
    ],
)
async def test_where_a_group_without_offsets_begins(
    server: Scripted, start_from: Literal["first", "last"] | int | datetime, offset: int, retry: int, where: str
) -> None:
    async with PushConsumer("g", nameserver=server.address, start_from=start_from).subscribe("T"):
        await eventually(lambda: len(server.pulls) == 2)
        assert {pull.topic: pull.queue_offset for pull in server.pulls} == {"T": offset, "%RETRY%g": retry}
        assert server.committed["g", "T", 0] == offset
        (data,) = server.heartbeats[-1].consumer_data_set
        assert (data.group_name, data.consume_from_where, data.message_model) == ("g", where, "CLUSTERING")
        assert sorted(each.topic for each in data.subscription_data_set) == ["%RETRY%g", "T"]


async def test_a_stored_offset_is_kept(server: Scripted) -> None:
    server.committed["g", "T", 0] = 77
    async with PushConsumer("g", nameserver=server.address, start_from="first").subscribe("T"):
        await eventually(lambda: len(server.pulls) == 2)
    (pull,) = [each for each in server.pulls if each.topic == "T"]
    assert (pull.queue_offset, pull.commit_offset, pull.sys_flag) == (77, 77, 3)
    assert server.committed["g", "T", 0] == 77


async def test_leaving_is_told(server: Scripted) -> None:
    async with PushConsumer("g", nameserver=server.address).subscribe("T"):
        pass
    assert [header.consumer_group for header in server.unregistered] == ["g"]


async def test_two_members_of_a_group_never_share_a_client_id(server: Scripted) -> None:
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(PushConsumer("g", nameserver=server.address).subscribe("T"))
            for _ in range(3)
        ]
        assert len({member.session.client_id for member in members if member.session}) == 3
        other = PushConsumer("h", nameserver=server.address).subscribe("T")
        async with other:
            assert other.session is members[0].session


async def test_a_member_whom_the_broker_does_not_list_yet_takes_nothing(server: Scripted) -> None:
    server.members.append("somebody-else")
    consumer = PushConsumer("g", nameserver=server.address).subscribe("T")
    async with consumer:
        await eventually(lambda: len(server.members) == 2)
        assert len(consumer.queues) <= 2


@pytest.mark.slow
async def test_a_member_whose_heartbeat_was_refused_tells_of_itself_again_soon(server: Scripted) -> None:
    """As when an operator grants what was missing; the regular heartbeat would come after half a minute."""
    server.refused_codes.add(34)
    consumer = PushConsumer("g", nameserver=server.address).subscribe("T")
    async with consumer:
        await eventually(lambda: len(server.heartbeats) >= 2)
        assert consumer.queues == []
        server.refused_codes.clear()
        await eventually(lambda: bool(consumer.queues))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer])
async def test_what_could_not_be_shared_out_at_the_start_is_tried_again_soon(
    kind: type[PushConsumer | LitePullConsumer], server: Scripted
) -> None:
    """Not at the next regular look, which comes after 20 s; the routes are known before, so none starts a look."""
    server.knows("%RETRY%g", server)
    server.refused_codes.add(34)
    consumer = kind("g", nameserver=server.address).subscribe("T")
    async with PullConsumer(nameserver=server.address) as other, AsyncExitStack() as stack:
        for topic in ("T", "%RETRY%g"):
            await other.fetch_queues(topic)
        await stack.enter_async_context(consumer)
        owned = member_of(consumer).rebalance
        await eventually(lambda: len(server.heartbeats) >= 2)
        assert owned is not None and not owned.readers
        server.refused_codes.clear()
        await eventually(lambda: bool(owned.readers))


class Case:
    """One message at offset 5 on its way back."""

    def __init__(self, server: Scripted, session: Session) -> None:
        self.run = ProcessQueue(MessageQueue("T", "broker-a", 0), 5)
        self.run.put({5: 100}, 6)
        self.again: list[ReceivedMessage] = []
        self.send_back = SendBack(session, "g", RetryPolicy(16), ConsumerStats(0))
        self.send_back.consume_again = lambda run, message: self.again.append(message)
        self.message = ReceivedMessage(record(5), self.run.queue)

    async def go(self, outcome: Later) -> None:
        self.send_back.start(self.run, [self.message], outcome)
        await self.send_back.finish(5)


@pytest.fixture
async def case(server: Scripted) -> AsyncIterator[Case]:
    async with PushConsumer("g", nameserver=server.address, settings=HASTY).subscribe("T") as consumer:
        yield Case(server, consumer.session)


async def test_the_broker_takes_a_message_back(server: Scripted, case: Case) -> None:
    await case.go(Later(delay_level=4))
    (header,) = server.sent_back
    assert (header.offset, header.group, header.delay_level, header.origin_topic) == (500, "g", 4, "T")
    assert header.max_reconsume_times == 16
    assert case.run.position == 6 and not server.sends


async def test_otherwise_it_is_sent_anew(server: Scripted, case: Case) -> None:
    server.refused_codes.add(36)
    await case.go(Later())
    (header,) = server.sends
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 1, 16)
    assert case.run.position == 6


async def test_a_send_to_the_retry_topic_is_retried(server: Scripted, case: Case) -> None:
    server.refused_codes.add(36)
    server.answers += [1] * 2
    await case.go(Later())
    assert len(server.sends) == 3
    assert case.run.position == 6 and not case.again


async def test_otherwise_it_is_kept_and_its_offset_waits(server: Scripted, case: Case) -> None:
    server.refused_codes.add(36)
    server.answers += [1] * 3
    await case.go(Later())
    await eventually(lambda: len(case.again) == 1)
    assert case.again[0].reconsume_times == 1
    assert case.run.position == 5


async def test_after_a_reset_nothing_goes_back(server: Scripted, case: Case) -> None:
    case.run.drop()
    await case.go(Later())
    assert not server.sent_back


def test_what_a_message_takes_along_when_it_is_sent_anew() -> None:
    old = record(5)._replace(
        properties_text=b"TAGS\x01A\x02UNIQ_KEY\x01U\x02TRAN_MSG\x01true", reconsume_times=2, sys_flag=0x305
    )
    header = retry_header("g", old, 16, delay={"DELAY": "5"})
    assert decode_properties((header.properties or "").encode()) == {
        "TAGS": "A",
        "UNIQ_KEY": "U",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": old.offset_message_id,
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }
    assert header.sys_flag == 0x301
    assert retry_header("g", old, 16, delay={"DELAY": "9"}).properties != header.properties


async def test_a_change_of_members_is_followed_at_once(server: Scripted) -> None:
    async with PushConsumer("g", nameserver=server.address, rebalance_interval=60).subscribe("T") as consumer:
        await eventually(lambda: len(consumer.queues) == 2)
        server.members.insert(0, "0-comes-first")
        engine_of(consumer).membership.members_changed()
        await eventually(lambda: not consumer.queues)
        server.members.remove("0-comes-first")
        engine_of(consumer).membership.members_changed()
        await eventually(lambda: len(consumer.queues) == 2)
    await asyncio.sleep(0)


async def test_heartbeats_go_on_and_routes_are_asked_for_again(server: Scripted) -> None:
    quick = ClientSettings(heartbeat_interval=0.02, route_interval=0.02)
    async with PushConsumer("g", nameserver=server.address, settings=quick).subscribe("T") as consumer:
        await eventually(lambda: len(server.heartbeats) >= 4)
        server.knows("T", server, queues=3)
        await eventually(lambda: len(consumer.queues) == 4)
        server.knows("T", server, queues=2)
        await eventually(lambda: len(consumer.queues) == 3)


async def test_a_condition_that_a_broker_cannot_check_is_told_at_start(server: Scripted) -> None:
    server.refused_codes.add(46)
    consumer = PushConsumer("g", nameserver=server.address).subscribe("T", "a > 5", expression_type="SQL92")
    with pytest.raises(UsageError, match=r'The subscription of T by SQL92 "a > 5" is refused by broker-a: not now'):
        await consumer.start()
    assert [header.consumer_group for header in server.unregistered] == ["g"]
    server.refused_codes.clear()
    async with consumer:
        (data,) = server.heartbeats[-1].consumer_data_set
        assert {each.sub_string for each in data.subscription_data_set} == {"a > 5", "*"}


async def test_a_condition_that_is_none_is_told_at_once(server: Scripted) -> None:
    consumer = PushConsumer("g", nameserver=server.address)
    with pytest.raises(UsageError, match="The SQL92 expression 'a > ' is wrong at position 5: a property or a const"):
        consumer.subscribe("T", "a > ", expression_type="SQL92")
    assert not engine_of(consumer).subscriptions
