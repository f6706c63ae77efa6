"""Hooks: what they see of sends, transactions and consumption, what they may change, and what they cannot break."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from eruca.client import (
    Decision,
    Hook,
    Later,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Suspend,
    TransactionProducer,
    TransactionState,
)
from eruca.client.errors import BadMessage, BrokerRefused, ClientError, StateError, TopicNotFound, UsageError
from eruca.client.hooks import (
    ConsumeContext,
    ConsumeReturnType,
    EndTransactionContext,
    FilterContext,
    MessageType,
    SendContext,
)
from tests.client.conftest import Lab, Seen, eventually
from tests.support.scripted import Scripted


class Diary(Hook):
    """Writes down every call and its context."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def check_forbidden(self, context: SendContext) -> None:
        self.calls.append(("check_forbidden", context))

    def before_send(self, context: SendContext) -> None:
        self.calls.append(("before_send", context))

    def after_send(self, context: SendContext) -> None:
        self.calls.append(("after_send", context))

    def before_end_transaction(self, context: EndTransactionContext) -> None:
        self.calls.append(("before_end_transaction", context))

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        self.calls.append(("after_end_transaction", context))

    def before_consume(self, context: ConsumeContext) -> None:
        self.calls.append(("before_consume", context))

    def after_consume(self, context: ConsumeContext) -> None:
        self.calls.append(("after_consume", context))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def last(self, name: str) -> Any:
        return [context for called, context in self.calls if called == name][-1]


class Stamp(Hook):
    """Gives every message a property."""

    def before_send(self, context: SendContext) -> None:
        context.properties["stamp"] = f"of {context.producer_group}"


# ---------------------------------------------------------------------- sending


async def test_a_send_is_seen_before_and_after(lab: Lab) -> None:
    diary = Diary()
    async with Producer("p", nameserver=lab.address, hooks=[diary]) as producer:
        message = Message("T", b"body", tags="a", keys="k")
        result = await producer.send(message)
        assert diary.names == ["check_forbidden", "before_send", "after_send"]
        context: SendContext = diary.last("after_send")
        assert (context.producer_group, context.messages, context.result) == ("p", [message], result)
        assert context.queue == result.queue and context.error is None
        assert context.broker_address == await producer.session.master("broker-a")
        assert context.client_id == producer.session.client_id and context.born_host == producer.session.address
        assert (context.message_type, context.body_size, context.region_id) == (MessageType.NORMAL, 4, "DefaultRegion")
        await producer.send(Message("T", b"x", delay_level=1))
        assert diary.last("after_send").message_type is MessageType.DELAY


async def test_what_a_hook_adds_travels_and_the_message_stays_as_it_was(lab: Lab, seen: Seen) -> None:
    async with Producer("p", nameserver=lab.address, hooks=[Stamp()]) as producer:
        message = Message("T", b"one", properties={"own": "1", "stamp": "old"}, tags="a")
        await producer.send(message)
        await producer.send_batch([Message("T", b"two"), Message("T", b"three", properties={"own": "3"})])
        await producer.send_oneway(Message("T", b"four"))
        async with PushConsumer("g", seen.coroutine, nameserver=lab.address).subscribe("T"):
            await seen.reaches(4)
    assert message.properties == {"own": "1", "stamp": "old"}
    assert {each.properties["stamp"] for each in seen.messages} == {"of p"}
    by_body = {each.body: each for each in seen.messages}
    assert by_body[b"one"].properties["own"] == "1" and by_body[b"one"].tags == "a"
    assert by_body[b"three"].properties["own"] == "3" and "own" not in by_body[b"two"].properties


async def test_a_batch_and_a_oneway_are_one_send_each(lab: Lab) -> None:
    diary = Diary()
    async with Producer("p", nameserver=lab.address, hooks=[diary]) as producer:
        batch = [Message("T", b"1"), Message("T", b"2")]
        result = await producer.send_batch(batch)
        assert diary.last("after_send").messages == batch and diary.last("after_send").result == result
        await producer.send_oneway(Message("T", b"3"))
        context = diary.last("after_send")
        assert context.oneway and context.result is None and context.error is None and context.queue is not None


async def test_a_hook_may_forbid_a_send(lab: Lab) -> None:
    class Guard(Hook):
        def check_forbidden(self, context: SendContext) -> None:
            if context.message.topic == "Secret":
                raise PermissionError("not this topic")

    diary = Diary()
    async with Producer("p", nameserver=lab.address, hooks=[Guard(), diary]) as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(PermissionError, match="not this topic"):
                await send(Message("Secret", b"x"))
        assert diary.calls == []
        await producer.send(Message("T", b"x"))
    assert "after_send" in diary.names


async def test_a_send_that_began_before_its_route_was_known_may_be_forbidden_too(server: Scripted) -> None:
    """The answer to the first send lets the others go, when there is a route."""

    class Guard(Hook):
        def check_forbidden(self, context: SendContext) -> None:
            if context.message.keys == "b":
                raise PermissionError("not this key")

    diary = Diary()
    async with Producer("p", nameserver=server.address, hooks=[Guard(), Stamp(), diary], max_in_flight=1) as producer:
        sends = [producer.start_send(Message("T", b"x", keys=key)) for key in "abc"]
        with pytest.raises(PermissionError, match="not this key"):
            await sends[1]
        last = await sends[2]
    assert [header.properties.count("stamp\x01of p") for header in server.sends] == [1, 1]
    assert diary.names == ["check_forbidden", "before_send", "after_send"] * 2
    assert diary.last("before_send").queue == last.queue


async def test_attempts_of_one_send_are_seen_as_one(server: Scripted) -> None:
    server.answers.extend([14, 14])
    diary = Diary()
    async with Producer("p", nameserver=server.address, hooks=[diary, Stamp()]) as producer:
        result = await producer.send(Message("T", b"x"))
        assert diary.names == ["check_forbidden", "before_send", "after_send"]
        assert diary.last("after_send").result == result
        server.answers.append(13)
        with pytest.raises(BrokerRefused) as caught:
            await producer.send(Message("T", b"x"))
        assert diary.last("after_send").error is caught.value and diary.last("after_send").result is None
    assert [header.properties.count("stamp\x01of p") for header in server.sends] == [1, 1, 1, 1]


async def test_a_hook_may_put_dictionaries_of_its_own_into_the_context(server: Scripted) -> None:
    class Own(Diary):
        def before_send(self, context: SendContext) -> None:
            super().before_send(context)
            assert context.properties == {} and context.notes == {}
            context.properties, context.notes = {"stamp": "own"}, {"began": 1}

    diary = Own()
    async with Producer("p", nameserver=server.address, hooks=[diary]) as producer:
        await producer.send(Message("T", b"x"))
    assert diary.last("after_send").notes == {"began": 1}
    assert "stamp\x01own" in server.sends[0].properties


async def test_a_send_that_nobody_waits_for_ends_too(server: Scripted) -> None:
    server.answers.append(-1)
    diary = Diary()
    async with Producer("p", nameserver=server.address, hooks=[diary], send_timeout=1) as producer:
        sending = producer.start_send(Message("T", b"x"))
        await eventually(lambda: bool(server.sends))
        sending.cancel()
        await eventually(lambda: "after_send" in diary.names)
        assert isinstance(diary.last("after_send").error, asyncio.CancelledError)
    assert diary.names.count("after_send") == 1


async def test_what_a_hook_adds_may_be_refused_and_the_send_has_its_end(server: Scripted) -> None:
    class Wordy(Hook):
        def before_send(self, context: SendContext) -> None:
            context.properties["story"] = "x" * 40_000

    diary = Diary()
    async with Producer("p", nameserver=server.address, hooks=[Wordy(), diary]) as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(BadMessage, match="more than 32767 bytes") as caught:
                await send(Message("T", b"x"))
            assert diary.names == ["check_forbidden", "before_send", "after_send"]
            assert diary.last("after_send").error is caught.value
            diary.calls.clear()
    assert server.sends == []


async def test_a_send_for_which_no_queue_is_found_is_seen_too(server: Scripted) -> None:
    diary = Diary()
    async with Producer("p", nameserver=server.address, hooks=[diary]) as producer:
        with pytest.raises(TopicNotFound) as caught:
            await producer.send(Message("Nowhere", b"x"))
    assert diary.names == ["before_send", "after_send"]
    context: SendContext = diary.last("after_send")
    assert (context.error, context.result, context.queue) == (caught.value, None, None)


async def test_hooks_run_in_the_context_of_the_sender(server: Scripted) -> None:
    """Also where a send had to wait for its turn, and the answer to another one lets it go."""
    sender: contextvars.ContextVar[str] = contextvars.ContextVar("sender", default="nobody")
    told: list[str] = []

    class Asks(Hook):
        def before_send(self, context: SendContext) -> None:
            told.append(f"{context.message.keys} before: {sender.get()}")

        def after_send(self, context: SendContext) -> None:
            told.append(f"{context.message.keys} after: {sender.get()}")

    async with Producer("p", nameserver=server.address, hooks=[Asks()], max_in_flight=1) as producer:
        sends = []
        for name in ("a", "b", "c"):
            sender.set(name)
            sends.append(producer.start_send(Message("T", b"x", keys=name)))
        sender.set("nobody")
        await asyncio.gather(*sends)
    assert sorted(told) == [f"{name} {when}: {name}" for name in "abc" for when in ("after", "before")]


async def test_what_a_hook_sets_in_the_context_of_a_send_is_there_at_its_end_and_nowhere_else(server: Scripted) -> None:
    span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")
    ended: list[str] = []

    class Traced(Hook):
        def before_send(self, context: SendContext) -> None:
            context.notes["token"] = span.set(f"of {context.message.keys}")

        def after_send(self, context: SendContext) -> None:
            ended.append(span.get())
            span.reset(context.notes["token"])

    async with Producer("p", nameserver=server.address, hooks=[Traced()]) as producer:
        await asyncio.gather(*(producer.start_send(Message("T", b"x", keys=key)) for key in "ab"))
        await producer.send_oneway(Message("T", b"x", keys="c"))
    assert sorted(ended) == ["of a", "of b", "of c"] and span.get() == "none"


async def test_a_hook_that_fails_changes_nothing(lab: Lab, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hook):
        def before_send(self, context: SendContext) -> None:
            raise ValueError("before")

        def after_send(self, context: SendContext) -> None:
            raise ValueError("after")

        def before_consume(self, context: ConsumeContext) -> None:
            raise ValueError("before")

        def after_consume(self, context: ConsumeContext) -> None:
            raise ValueError("after")

    diary = Diary()
    async with Producer("p", nameserver=lab.address, hooks=[Broken()]) as producer:
        producer.add_hook(diary)
        await producer.send(Message("T", b"x"))
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, hooks=[Broken(), diary]).subscribe("T"):
        await seen.reaches(1)
        await eventually(lambda: "after_consume" in diary.names)
    assert diary.last("after_consume").success
    assert caplog.text.count("a hook failed: test_a_hook_that_fails_changes_nothing.<locals>.Broken.") == 4


async def test_what_is_no_hook_is_refused(lab: Lab) -> None:
    with pytest.raises(UsageError, match="derived from eruca"):
        Producer("p", nameserver=lab.address, hooks=[object()])  # type: ignore[list-item]
    async with PushConsumer("g", nameserver=lab.address).subscribe("T") as consumer:
        with pytest.raises(StateError, match="before start"):
            consumer.add_hook(Diary())


# ---------------------------------------------------------------------- transactions


async def test_the_end_of_a_transaction_is_seen(lab: Lab) -> None:
    diary = Diary()

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with TransactionProducer("p", check, nameserver=lab.address, hooks=[diary]) as producer:
        message = Message("T", b"x", keys="k")
        done = await producer.send_in_transaction(message, lambda _, __: TransactionState.COMMIT)
    assert diary.names[2:] == ["after_send", "before_end_transaction", "after_end_transaction"]
    assert diary.last("after_send").message_type is MessageType.TRANSACTION_HALF
    context: EndTransactionContext = diary.last("after_end_transaction")
    assert context.state is TransactionState.COMMIT and not context.from_check and context.message is message
    assert context.transaction_id == context.message_id == done.transaction_id and context.error is None


# ---------------------------------------------------------------------- consuming


async def test_a_listener_is_enclosed(lab: Lab) -> None:
    """Whichever kind it is, and the calls run where it runs."""
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")
    found: list[str] = []

    class Place(Diary):
        def before_consume(self, context: ConsumeContext) -> None:
            super().before_consume(context)
            context.notes["token"] = where.set(context.messages[0].topic)

        def after_consume(self, context: ConsumeContext) -> None:
            where.reset(context.notes["token"])
            super().after_consume(context)

    async def coroutine(message: ReceivedMessage) -> None:
        found.append(where.get())

    def function(message: ReceivedMessage) -> None:
        found.append(where.get())

    for number, listener in enumerate((coroutine, function)):
        topic, place = f"T{number}", Place()
        await lab.send(topic, b"x")
        consumer = PushConsumer(f"g{number}", listener, nameserver=lab.address, hooks=[place])
        async with consumer.subscribe(topic):
            await eventually(lambda place=place: "after_consume" in place.names)  # type: ignore[misc]
            context: ConsumeContext = place.last("after_consume")
            assert (context.consumer_group, context.queue.topic) == (f"g{number}", topic)
            assert (context.success, context.status) == (True, "CONSUME_SUCCESS")
            assert context.return_type is ConsumeReturnType.SUCCESS and context.in_listener
    assert found == ["T0", "T1"]


@pytest.mark.parametrize(
    ("answer", "orderly", "status", "kind"),
    [
        (Later(), False, "RECONSUME_LATER", ConsumeReturnType.FAILED),
        (ValueError("no"), False, "RECONSUME_LATER", ConsumeReturnType.EXCEPTION),
        (Suspend(30), True, "SUSPEND_CURRENT_QUEUE_A_MOMENT", ConsumeReturnType.FAILED),
        (Decision.ROLLBACK, True, "ROLLBACK", ConsumeReturnType.FAILED),
    ],
)
async def test_what_a_listener_said(lab: Lab, answer: Any, orderly: bool, status: str, kind: ConsumeReturnType) -> None:
    async def listener(message: ReceivedMessage) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    await lab.send("T", b"x")
    diary = Diary()
    consumer = PushConsumer("g", listener, nameserver=lab.address, orderly=orderly, hooks=[diary])
    async with consumer.subscribe("T"):
        await eventually(lambda: "after_consume" in diary.names)
    context: ConsumeContext = diary.last("after_consume")
    assert (context.success, context.status, context.return_type) == (False, status, kind)
    assert context.error is (answer if isinstance(answer, Exception) else None)


async def test_messages_of_a_loop_are_seen_until_they_are_settled(lab: Lab) -> None:
    await lab.send("T", b"1", b"2")
    diary = Diary()
    async with PushConsumer("g", nameserver=lab.address, hooks=[diary]).subscribe("T") as consumer:
        messages = consumer.messages(auto_ack=False)
        first, second = await anext(messages), await anext(messages)
        assert diary.names == ["before_consume", "before_consume"] and not diary.last("before_consume").in_listener
        second.later()
        assert diary.last("after_consume").messages == [second]
        assert diary.last("after_consume").status == "RECONSUME_LATER"
        first.ack()
        assert diary.last("after_consume").messages == [first] and diary.last("after_consume").success


async def test_a_hook_may_leave_out_messages(lab: Lab, seen: Seen) -> None:
    class Sieve(Hook):
        def filter_messages(self, context: FilterContext) -> None:
            assert (context.consumer_group, context.queue.broker_name) == ("g", "broker-a")
            context.messages[:] = [each for each in context.messages if each.body != b"hide"]

    await lab.send("T", b"show", b"hide", b"hide", b"show")
    async with PushConsumer("g", seen.coroutine, nameserver=lab.address, hooks=[Sieve()]).subscribe("T"):
        await seen.reaches(2)
        await lab.stores("g", "T", [1, 1, 1, 1])  # what was left out is passed
    assert seen.bodies == [b"show", b"show"]


async def test_an_error_of_the_client_is_no_reason_to_try_again(lab: Lab) -> None:
    """A hook that forbids by one of the client's own errors is obeyed as well, at the first send of a topic, too."""

    class Guard(Hook):
        def check_forbidden(self, context: SendContext) -> None:
            raise ClientError("no")

    async with Producer("p", nameserver=lab.address, hooks=[Guard()]) as producer:
        with pytest.raises(ClientError, match="no"):
            await producer.send(Message("Fresh", b"x"))
