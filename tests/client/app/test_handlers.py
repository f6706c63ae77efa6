"""Typed handlers: bodies as values, dependencies made and given up, what is returned is published."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from eruca.client import App, Depends, Later, Message, ReceivedMessage, Reject, Suspend
from eruca.client.errors import BadBody, NotConsumed, UsageError
from eruca.client.serializers import JSON, MSGPACK
from tests.client.conftest import Lab


class Order(pydantic.BaseModel):
    dish: str
    plates: int = 1


class Bill(msgspec.Struct):
    dish: str
    cents: int


@dataclass
class Table:
    number: int


class Saw(list[Any]):
    """What handlers got."""


saw = Saw()


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    saw.clear()


async def take_order(order: Order) -> None:
    saw.append(order)


async def take_orders(orders: list[Order]) -> None:
    saw.append(orders)


async def take_bill(bill: Bill) -> None:
    saw.append(bill)


def take_table(table: Table) -> None:
    saw.append(table)


async def take_numbers(numbers: list[int]) -> None:
    saw.append(numbers)


async def take_dict(values: dict[str, Any], message: ReceivedMessage) -> None:
    saw.append((values, message.topic))


async def take_text(text: str) -> None:
    saw.append(text)


async def take_bytes(body: bytes) -> None:
    saw.append(body)


async def take_anything(message) -> None:  # type: ignore[no-untyped-def]
    saw.append(message.body)


@pytest.mark.parametrize(
    ("handler", "sent", "got"),
    [
        (take_order, Order(dish="soup"), Order(dish="soup")),
        (take_order, Message("T", b'{"dish": "soup", "plates": 2}'), Order(dish="soup", plates=2)),
        (take_order, Message.of("T", {"dish": "soup"}, MSGPACK), Order(dish="soup")),
        (take_orders, [{"dish": "soup"}, {"dish": "salad"}], [Order(dish="soup"), Order(dish="salad")]),
        (take_bill, Bill("soup", 450), Bill("soup", 450)),
        (take_bill, Message.of("T", Bill("soup", 450), MSGPACK), Bill("soup", 450)),
        (take_table, Table(7), Table(7)),
        (take_numbers, [1, 2], [1, 2]),
        (take_dict, {"a": 1}, ({"a": 1}, "T")),
        (take_text, "grün", "grün"),
        (take_text, Message.of("T", "grün"), "grün"),
        (take_text, Message.of("T", "grün", MSGPACK), "grün"),
        (take_text, Message.of("T", {"a": 1}), '{"a":1}'),
        (take_text, Message("T", b'"as it is"'), '"as it is"'),
        (take_bytes, b"\xff", b"\xff"),
        (take_anything, b"x", b"x"),
    ],
)
async def test_a_body_is_a_value_of_the_type_that_is_asked_for(lab: Lab, handler: Any, sent: Any, got: Any) -> None:
    app = App()
    app.consumer("T", "g")(handler)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", sent)
        await test.handled(handler)
    assert list(saw) == [got]


async def take_any_first(value: Any, message: ReceivedMessage) -> None:
    saw.append((value, message.topic))


async def take_any_second(message: ReceivedMessage, value: Any) -> None:
    saw.append((value, message.topic))


def take_any_in_a_thread(value: Any, message: ReceivedMessage) -> None:
    saw.append((value, message.topic))


@pytest.mark.parametrize("handler", [take_any_first, take_any_second, take_any_in_a_thread])
async def test_any_beside_a_message_is_its_value(lab: Lab, handler: Any) -> None:
    app = App()
    app.consumer("T", "g")(handler)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", {"dish": "soup"})
        await test.handled(handler)
    assert list(saw) == [({"dish": "soup"}, "T")]


async def take_list_of_any(values: list[Any], messages: list[ReceivedMessage]) -> None:
    saw.append((values, [message.topic for message in messages]))


async def take_any_of_a_list(messages: list[ReceivedMessage], values: Any) -> None:
    saw.append((values, [message.topic for message in messages]))


@pytest.mark.parametrize("handler", [take_list_of_any, take_any_of_a_list])
async def test_so_it_is_in_a_list(lab: Lab, handler: Any) -> None:
    app = App()
    app.consumer("T", "g", consume_message_batch_max_size=8)(handler)
    async with app.test(nameserver=lab.address) as test:
        await lab.producer.send_batch([Message.of("T", {"dish": "soup"}), Message.of("T", 5)])
        await test.handled(handler)
    assert list(saw) == [([{"dish": "soup"}, 5], ["T", "T"])]


async def take_any_alone(message: Any) -> None:
    saw.append(message.body)


async def take_unsaid(message, beside: ReceivedMessage) -> None:  # type: ignore[no-untyped-def]
    assert message is beside
    saw.append(message.body)


@pytest.mark.parametrize("handler", [take_any_alone, take_unsaid])
async def test_any_alone_and_a_parameter_without_an_annotation_are_the_message(lab: Lab, handler: Any) -> None:
    app = App()
    app.consumer("T", "g")(handler)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", b"x")
        await test.handled(handler)
    assert list(saw) == [b"x"]


async def test_a_list_has_values(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g", consume_message_batch_max_size=8)
    async def handle(orders: list[Order], messages: list[ReceivedMessage]) -> None:
        saw.append([(order.dish, message.topic) for order, message in zip(orders, messages, strict=True)])

    async with app.test(nameserver=lab.address) as test:
        await lab.producer.send_batch([Message("T", b'{"dish": "a"}'), Message("T", b'{"dish": "b"}')])
        handled = await test.handled(handle)
    assert saw == [[("a", "T"), ("b", "T")]] and len(handled.messages) == 2


# ------------------------------------------------------------------ bodies that cannot be read


async def test_a_body_that_cannot_be_read_is_a_dead_letter_at_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    app.consumer("T", "g")(take_order)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", {"plates": 1})
        assert not (await test.handled(take_order)).success
        letter = await test.published("%DLQ%g")
    assert letter.body == b'{"plates":1}' and not saw
    assert "dish" in letter.properties["DEAD_LETTER_TEXT"]
    [line] = [each for each in caplog.messages if "dead letter" in each]
    assert "The body cannot be read as this handler wants it" in line and "dish" in line


async def test_so_is_it_in_the_order_of_a_queue(lab: Lab) -> None:
    app = App()
    app.consumer("T", "g", orderly=True)(take_order)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", "no order")
        call = await test.handled(take_order)
        assert not call.success and "The body cannot be read as this handler wants it" in (call.reason or "")
        assert (await test.published("%DLQ%g")).body == b"no order"
        await test.publish("T", Order(dish="soup"))
        assert (await test.handled(take_order)).success
    assert list(saw) == [Order(dish="soup")]


async def test_it_may_be_skipped_or_retried(lab: Lab) -> None:
    skipping, retrying = App(), App()
    skipping.consumer("T", "g", on_bad_body="skip")(take_order)
    retrying.consumer("T", "h", on_bad_body="retry")(take_order)
    async with skipping.test(nameserver=lab.address) as test:
        await test.publish("T", "no order")
        assert (await test.handled(take_order)).success
    async with retrying.test(nameserver=lab.address) as test:
        await test.publish("T", "no order")
        with pytest.raises(BadBody, match="cannot be read"):
            await test.handled(take_order)
    assert not saw


@pytest.mark.parametrize("choice", ["dead", "skip"])
async def test_in_a_list_only_the_bad_ones_go(lab: Lab, choice: Any) -> None:
    app = App()

    @app.consumer("T", "g", consume_message_batch_max_size=8, on_bad_body=choice)
    async def handle(orders: list[Order]) -> None:
        saw.append([order.dish for order in orders])

    async with app.test(nameserver=lab.address) as test:
        bodies = [b'{"dish": "a"}', b"bad", b'{"dish": "b"}']
        await lab.producer.send_batch([Message("T", body) for body in bodies])
        assert (await test.handled(handle)).success == (choice == "skip")
        if choice == "dead":
            assert (await test.published("%DLQ%g")).body == b"bad"
    assert saw == [["a", "b"]]
    await lab.stores("g", "T", [offset or 0 for offset in await lab.ends("T")])


async def test_a_handler_that_wants_a_rest_of_its_list_again_gets_that_rest(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g", consume_message_batch_max_size=8, on_bad_body="skip")
    async def handle(texts: list[int]) -> Later | None:
        saw.append(texts)
        return Later(delay_level=1, consumed=1) if len(texts) > 1 else None

    async with app.test(nameserver=lab.address) as test:
        await lab.producer.send_batch([Message("T", body) for body in (b"1", b"bad", b"2")])
        await test.handled(handle)
        await test.handled(handle)
    assert saw == [[1, 2], [2]]


# ------------------------------------------------------------------ dependencies


class Session:
    def __init__(self) -> None:
        self.life = ["open"]
        saw.append(self)


async def get_session() -> AsyncIterator[Session]:
    session = Session()
    try:
        yield session
    except RuntimeError:
        session.life.append("rolled back")
        raise
    else:
        session.life.append("committed")
    finally:
        session.life.append("closed")


CurrentSession = Annotated[Session, Depends(get_session)]


async def get_repository(session: CurrentSession) -> tuple[str, Session]:
    return "repository", session


def get_tenant(message: ReceivedMessage) -> str:
    return message.tags or "nobody"


async def cook(
    order: Order,
    session: CurrentSession,
    repository: Annotated[tuple[str, Session], Depends(get_repository)],
    tenant: Annotated[str, Depends(get_tenant)],
) -> None:
    assert repository == ("repository", session), "one session for all who ask"
    session.life.append(f"{order.dish} for {tenant}")
    if order.dish == "burnt":
        raise RuntimeError("burnt")


async def test_dependencies_live_as_long_as_the_call(lab: Lab) -> None:
    app = App()
    app.consumer("Orders", "kitchen")(cook)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("Orders", Message("Orders", b'{"dish": "soup"}', tags="acme"))
        await test.handled(cook)
        await test.publish("Orders", Order(dish="burnt"))
        with pytest.raises(RuntimeError, match="burnt"):
            await test.handled(cook)
    assert [session.life for session in saw] == [
        ["open", "soup for acme", "committed", "closed"],
        ["open", "burnt for nobody", "rolled back", "closed"],
    ]


def get_connection() -> Iterator[threading.Thread]:
    saw.append("open")
    yield threading.current_thread()
    saw.append("closed")


def in_a_thread(order: Order, thread: Annotated[threading.Thread, Depends(get_connection)]) -> None:
    assert threading.current_thread() is thread, "as SQLite wants it"
    saw.append(order.dish)


async def test_a_plain_function_and_its_dependencies_run_in_one_thread(lab: Lab) -> None:
    app = App()
    app.consumer("T", "g")(in_a_thread)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", Order(dish="soup"))
        await test.handled(in_a_thread)
    assert saw == ["open", "soup", "closed"]


def transaction() -> Iterator[None]:
    try:
        yield
        saw.append("commit")
    except Exception as error:
        saw.append(repr(error))
        raise
    finally:
        saw.append("closed")


async def async_transaction() -> AsyncIterator[None]:
    try:
        yield
        saw.append("commit")
    except Exception as error:
        saw.append(repr(error))
        raise
    finally:
        saw.append("closed")


outcomes: list[Any] = []
"""What the next handlers return."""


async def in_a_transaction(body: bytes, _: Annotated[None, Depends(transaction)]) -> Any:
    return outcomes.pop(0)


async def in_an_async_transaction(body: bytes, _: Annotated[None, Depends(async_transaction)]) -> Any:
    return outcomes.pop(0)


def in_a_transaction_in_a_thread(body: bytes, _: Annotated[None, Depends(transaction)]) -> Any:
    return outcomes.pop(0)


@pytest.mark.parametrize("handler", [in_a_transaction, in_an_async_transaction, in_a_transaction_in_a_thread])
@pytest.mark.parametrize(
    ("outcome", "orderly"), [(Later(), False), (Reject("x"), False), (Reject("x"), True), (Suspend(0.01), True)]
)
async def test_a_provider_does_not_commit_what_is_not_consumed(
    lab: Lab, handler: Any, outcome: Any, orderly: bool
) -> None:
    app = App()
    outcomes[:] = [outcome, None]
    app.consumer("T", "g", orderly=orderly)(handler)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", b"x")
        handled = await test.handled(handler)
        assert not handled.success and handled.reason == getattr(outcome, "reason", None)
        if not isinstance(outcome, Suspend):
            await test.publish("T", b"y")
        assert (await test.handled(handler)).success
    assert list(saw) == [repr(NotConsumed(outcome)), "closed", "commit", "closed"]


def swallowing_all() -> Iterator[str]:
    with contextlib.suppress(NotConsumed):
        yield "x"


async def test_neither_does_that_of_a_plain_handler_and_the_outcome_stays(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g", publish_to="Bills")
    def handle(
        body: bytes, one: Annotated[None, Depends(transaction)], two: Annotated[str, Depends(swallowing_all)]
    ) -> Reject:
        return Reject("no such street")

    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", b"x")
        handled = await test.handled(handle)
        assert (handled.success, handled.reason) == (False, "no such street")
        letter = await test.published("%DLQ%g")
    assert letter.properties["DEAD_LETTER_ERROR"] == "Reject"
    assert list(saw) == [repr(NotConsumed(Reject("no such street"))), "closed"], "though the inner provider caught it"


async def broken() -> AsyncIterator[None]:
    try:
        yield
    except NotConsumed as error:
        raise OSError("the database is away") from error


async def test_a_clean_up_that_fails_then_is_the_error_of_the_handler(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g")
    async def handle(body: bytes, session: Annotated[None, Depends(broken)]) -> Reject:
        return Reject("no such street")

    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", b"x")
        with pytest.raises(OSError, match="the database is away"):
            await test.handled(handle)


async def test_a_part_of_a_list_that_is_consumed_is_committed(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g", consume_message_batch_max_size=8)
    async def handle(bodies: list[bytes], session: Annotated[None, Depends(transaction)]) -> Reject:
        return Reject("x", consumed=1)

    async with app.test(nameserver=lab.address) as test:
        await lab.producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        await test.handled(handle)
        assert (await test.published("%DLQ%g")).body == b"2"
    assert list(saw) == ["commit", "closed"]


def swallowing() -> Iterator[str]:
    with contextlib.suppress(RuntimeError):
        yield "x"


async def test_a_clean_up_that_swallows_an_error_does_not_make_a_success(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g")
    async def failing(
        message: ReceivedMessage, _: Annotated[None, Depends(transaction)], thing: Annotated[str, Depends(swallowing)]
    ) -> None:
        raise RuntimeError("in the handler")

    @app.consumer("T", "h")
    def failing_too(
        message: ReceivedMessage, _: Annotated[None, Depends(transaction)], thing: Annotated[str, Depends(swallowing)]
    ) -> None:
        raise RuntimeError("in the handler")

    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", b"x")
        for handler in (failing, failing_too):
            with pytest.raises(RuntimeError, match="in the handler"):
                await test.handled(handler)
    assert sorted(saw) == sorted(["RuntimeError('in the handler')", "closed"] * 2), "an outer provider does not commit"


async def get_test_session() -> str:
    return "of the test"


async def test_a_test_may_replace_a_dependency(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g")
    async def handle(message: ReceivedMessage, session: CurrentSession) -> None:
        saw.append(session)

    async with app.test(nameserver=lab.address, dependencies={get_session: get_test_session}) as test:
        await test.publish("T", b"x")
        await test.handled(handle)
    assert list(saw) == ["of the test"]
    with (
        pytest.raises(
            UsageError, match="names get_test_session, on which no handler depends: did you mean get_session"
        ),
        app.using(nameserver=lab.address, dependencies={get_test_session: get_session}),
    ):
        await app.start()


# ------------------------------------------------------------------ replies


async def test_what_a_handler_returns_is_published(lab: Lab) -> None:
    app = App()

    @app.consumer("Orders", "kitchen", publish_to="Bills")
    async def bill(order: Order) -> Bill | Later | Reject | None:
        match order.dish:
            case "nothing":
                return None
            case "later":
                return Later()
            case "never":
                return Reject("not here")
        return Bill(order.dish, 450)

    @app.consumer("Orders", "bar", publish_to="Drinks")
    def drink(order: Order) -> Message:
        return Message("Drinks", order.dish.encode(), tags="cold")

    async with app.test(nameserver=lab.address) as test:
        for dish, success in (("nothing", True), ("later", False), ("never", False), ("soup", True)):
            await test.publish("Orders", Order(dish=dish))
            assert (await test.handled(bill)).success is success
        assert (await test.published("Bills")).value == {"dish": "soup", "cents": 450}
        assert (await test.published("Drinks")).tags == "cold"


async def test_a_value_that_goes_nowhere_is_an_error_that_names_the_handler(lab: Lab) -> None:
    app = App()

    @app.consumer("T", "g")
    async def count(body: bytes) -> int:
        return len(body)

    @app.consumer("T", "h")
    def count_in_a_thread(body: bytes) -> int:
        return len(body)

    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", b"x")
        for handler in (count, count_in_a_thread):
            sentence = rf"^The handler .*\.{handler.__name__} returned a value of type int: give publish_to= to send"
            with pytest.raises(UsageError, match=sentence):
                await test.handled(handler)


# ------------------------------------------------------------------ wrong use


async def two_bodies(first: Order, second: Bill) -> None: ...


async def nothing() -> None: ...


async def by_name(*, message: ReceivedMessage) -> None:
    saw.append(message.body)


async def unreadable(what: threading.Thread) -> None: ...


async def unknown(what: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def by_default(what: Session = Depends(get_session)) -> None: ...  # type: ignore[assignment]  # noqa: B008


def plain(session: CurrentSession) -> None: ...


async def circle(what: Annotated[int, Depends(lambda: 1)]) -> None: ...


async def bodies_for_a_provider(order: Order, what: Annotated[int, Depends(take_bill)]) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "sentence"),
    [
        (two_bodies, {}, r"two_bodies takes several bodies \(first, second\)"),
        (nothing, {}, "nothing takes nothing: a handler takes the message, or its body"),
        (unreadable, {}, "Bodies cannot be read as .*Thread"),
        (unknown, {}, "The annotations of unknown cannot be resolved .*define or import the types at the top"),
        (by_default, {}, r"what=Depends\(...\) of by_default is a default: write what: Annotated"),
        (plain, {}, "plain is a plain function, which runs in threads, and depends on a coroutine"),
        (bodies_for_a_provider, {}, "A dependency of bodies_for_a_provider takes bill: annotate it"),
        (take_order, {"consume_message_batch_max_size": 5}, "order of take_order is one value: .* takes lists"),
        (take_order, {"on_bad_body": "burn"}, "on_bad_body='burn'"),
    ],
)
def test_wrong_handlers_are_refused_where_they_are_declared(
    function: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        App().consumer("T", "g", **options)(function)


async def test_a_message_by_name_only(lab: Lab) -> None:
    app = App()
    app.consumer("T", "g")(by_name)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", b"x")
        await test.handled(by_name)
    assert list(saw) == [b"x"]


def test_a_circle_of_dependencies() -> None:
    def one(other: Any) -> None: ...

    def other(one: Any) -> None: ...

    one.__annotations__["other"] = Annotated[Any, Depends(other)]
    other.__annotations__["one"] = Annotated[Any, Depends(one)]
    with pytest.raises(UsageError, match=r"Dependencies in a circle: .*one needs .*other needs .*one\."):
        App().consumer("T", "g")(one)


def test_what_cannot_provide() -> None:
    with pytest.raises(UsageError, match="The provider of Depends is of type int"):
        Depends(5)  # type: ignore[arg-type]


async def test_a_plain_dependency_of_a_coroutine_does_not_block_the_loop(lab: Lab) -> None:
    app = App()
    loop_thread = threading.current_thread()

    def where() -> threading.Thread:
        return threading.current_thread()

    def where_in_steps() -> Iterator[threading.Thread]:
        yield threading.current_thread()

    async def handle(
        message: ReceivedMessage,
        first: Annotated[Any, Depends(where)],
        second: Annotated[Any, Depends(where_in_steps)],
    ) -> None:
        assert first is not loop_thread and second is not loop_thread
        assert asyncio.get_running_loop()

    handle.__annotations__.update(
        first=Annotated[Any, Depends(where)], second=Annotated[Any, Depends(where_in_steps)], message=ReceivedMessage
    )
    app.consumer("T", "g")(handle)
    async with app.test(nameserver=lab.address) as test:
        await test.publish("T", Message.of("T", 1, JSON))
        await test.handled(handle)
