"""Functions that are called by name: results, errors, time-outs, types, and both faces of the client."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from eruca.client import RPC, Message, PushConsumer, ReceivedMessage, sync
from eruca.client.errors import BadAnswer, BadMessage, CallTimeout, RemoteError, StateError, UsageError
from eruca.client.network.requests import is_expired
from eruca.client.serializers import Json
from tests.client.conftest import Lab, eventually


@dataclasses.dataclass
class Price:
    item: str
    cents: int


class Prices(Protocol):
    async def price(self, item: str, amount: int = 1) -> Price: ...
    async def total(self, *prices: Price) -> int: ...


@pytest.fixture
async def asker(lab: Lab) -> AsyncIterator[RPC]:
    await lab.producer.create_topic("Calls", 2)
    async with RPC("Calls", "shop", nameserver=lab.address, timeout=10) as rpc:
        yield rpc


def server(lab: Lab) -> RPC:
    rpc = RPC("Calls", "price-service", nameserver=lab.address)

    @rpc.method
    async def price(item: str, amount: int = 1) -> Price:
        return Price(item, 350 * amount)

    @rpc.method
    def total(*prices: Price) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return sum(each.cents for each in prices)

    @rpc.method(name="stock.of")
    async def stock(**items: int) -> dict[str, int]:
        return items

    @rpc.method
    async def refuse(item: str) -> None:
        raise LookupError(f"no {item} today")

    @rpc.method
    async def silent() -> None:
        raise ZeroDivisionError

    @rpc.method
    async def odd() -> object:
        return object()

    return rpc


async def test_a_method_is_called_by_position_and_by_name(lab: Lab, asker: RPC) -> None:
    async with server(lab):
        salad = {"item": "salad", "cents": 700}
        assert await asker.call("price", ["salad", 2]) == salad
        assert await asker.call("price", named={"item": "salad", "amount": 2}) == salad
        assert await asker.call("price", ["salad"], {"amount": 2}) == salad
        assert await asker.call("price", ["salad"], returns=Price) == Price("salad", 350)
        assert await asker.call("stock.of", named={"salad": 3}) == {"salad": 3}
        assert await asker.proxy().price("salad", amount=2) == salad


async def test_a_typed_proxy_converts_results_and_compares_arguments(lab: Lab, asker: RPC) -> None:
    async with server(lab):
        prices = asker.proxy(Prices)
        assert await prices.price("salad", amount=2) == Price("salad", 700)
        assert await prices.total(Price("a", 1), Price("b", 2)) == 3
        with pytest.raises(UsageError, match=r"Prices\.price: got an unexpected keyword argument 'number'"):
            await prices.price("salad", number=2)  # type: ignore[call-arg]
        with pytest.raises(AttributeError, match="Prices has no method prise"):
            prices.prise  # type: ignore[attr-defined]  # noqa: B018


async def test_what_a_method_raises_reaches_the_asker(lab: Lab, asker: RPC, caplog: pytest.LogCaptureFixture) -> None:
    async with server(lab):
        with pytest.raises(RemoteError) as refused:
            await asker.call("refuse", ["salad"])
        with pytest.raises(RemoteError, match=r"^ZeroDivisionError$"):
            await asker.call("silent")
        with pytest.raises(RemoteError, match="BadMessage: a value of type object cannot be written"):
            await asker.call("odd")
    assert (refused.value.type, refused.value.text) == ("LookupError", "no salad today")
    assert not refused.value.retriable and "Traceback" not in str(refused.value)
    assert "the method refuse of Calls failed" in caplog.text


async def test_a_result_that_is_too_large_is_told_at_once(
    lab: Lab, asker: RPC, caplog: pytest.LogCaptureFixture
) -> None:
    rpc = server(lab)

    @rpc.method
    async def large(size: int) -> str:
        return "x" * size

    async with rpc:
        with pytest.raises(RemoteError) as refused:
            await asker.call("large", [5_000_000])
        assert await asker.call("large", [3]) == "xxx"
    told = "the result of large cannot be sent: the message body size over max value, MAX: 4194304"
    assert (refused.value.type, refused.value.text) == ("BadMessage", told)
    assert "the result of large of Calls cannot be sent: the message body size over max value" in caplog.text


async def test_a_text_of_any_length_is_told_and_logged(lab: Lab, asker: RPC, caplog: pytest.LogCaptureFixture) -> None:
    rpc = server(lab)

    @rpc.method
    async def verbose() -> None:
        raise ValueError("x" * 5_000_000)

    async with rpc:
        with pytest.raises(RemoteError) as refused:
            await asker.call("verbose")
    assert (refused.value.type, refused.value.text) == ("ValueError", "x" * 4000 + "… (5000000 characters)")
    [line] = [each for each in caplog.messages if "the method verbose of Calls failed: ValueError: xxx" in each]
    assert len(line) < 10_000 and 'raise ValueError("x" * 5_000_000)' in line and len(caplog.text) < 20_000


@pytest.mark.parametrize(
    ("name", "args", "kind", "text"),
    [
        ("prise", ["salad"], "UnknownMethod", "Calls has no method 'prise'; it has odd, price, refuse"),
        ("price", [], "BadArguments", "price: missing a required argument: 'item'"),
        ("price", ["salad", "two"], "BadArguments", "price: amount: Expected `int`, got `str`"),
        ("total", [{"item": "a"}], "BadArguments", "total: prices: Object missing required field `cents`"),
    ],
)
async def test_a_call_that_does_not_fit_is_refused(
    lab: Lab, asker: RPC, name: str, args: list[object], kind: str, text: str
) -> None:
    async with server(lab):
        with pytest.raises(RemoteError) as refused:
            await asker.call(name, args)
    assert refused.value.type == kind and refused.value.text.startswith(text)


async def test_a_result_of_another_type_is_told(lab: Lab, asker: RPC) -> None:
    async with server(lab):
        with pytest.raises(BadAnswer, match="The result of price of Calls is not what was expected: Expected `int`"):
            await asker.call("price", ["salad"], returns=int)


async def test_calls_run_side_by_side(lab: Lab, asker: RPC) -> None:
    rpc, together = RPC("Calls", "price-service", nameserver=lab.address), asyncio.Barrier(10)

    @rpc.method
    async def meet() -> None:
        await together.wait()

    async with rpc, asyncio.timeout(20):
        await asyncio.gather(*(asker.call("meet") for _ in range(10)))


async def test_a_call_without_an_answer_ends_in_time(lab: Lab, asker: RPC) -> None:
    began = time.monotonic()
    with pytest.raises(CallTimeout):
        await asker.call("price", ["salad"], timeout=0.3)
    assert time.monotonic() - began < 5


def ended(message: ReceivedMessage, ttl: str) -> ReceivedMessage:
    """The request as one that its asker gave this time, a minute ago."""
    before = f"TTL\x01{message.properties['TTL']}".encode()
    text = message.record.properties_text.replace(before, f"TTL\x01{ttl}".encode())
    born = message.born_timestamp - 60_000
    return ReceivedMessage(message.record._replace(properties_text=text, born_timestamp=born), message.queue)


async def test_a_question_whose_time_is_over_is_not_answered(
    lab: Lab, asker: RPC, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(message: ReceivedMessage) -> None:
        assert await lab.producer.reply(ended(message, "3000"), b"too late") is None
        assert await lab.producer.reply_error(ended(message, "3000"), "Late", "too late") is None
        assert not is_expired(ended(message, "9" * 5000))
        assert await lab.producer.reply(ended(message, "70000"), Message("", b"7", properties={"by": "me"}))

    async with PushConsumer("g", listener, nameserver=lab.address, start_from="first").subscribe("Calls"):
        assert await asker.call("price") == 7
    assert "is not answered: its time is over" in caplog.text


async def test_a_call_whose_time_is_over_is_not_begun(lab: Lab, asker: RPC, caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()
    with pytest.raises(CallTimeout):
        await asker.call("late", timeout=0.5)  # in which its question is stored
    await asyncio.sleep(1.1)  # the second by which clocks may differ
    rpc = RPC("Calls", "price-service", nameserver=lab.address)

    @rpc.method
    async def late() -> None:
        raise AssertionError("begun")

    @rpc.method
    async def now() -> None:
        done.set()

    async with rpc:
        await asker.call("now")
        await eventually(lambda: "a call of late of Calls is left out" in caplog.text)  # it may lie in the other queue
    assert done.is_set() and "begun" not in caplog.text


async def test_an_answer_has_properties_and_values(lab: Lab, asker: RPC) -> None:
    async def listener(message: ReceivedMessage) -> None:
        await lab.producer.reply(message, Message.of("", {"a": 1}, Json(), tags="new", properties={"by": "me"}))

    async with PushConsumer("g", listener, nameserver=lab.address, start_from="first").subscribe("Calls"):
        answer = await lab.producer.request(Message("Calls", b"?"), timeout=10)
    assert (answer.value, answer.tags, answer.properties["by"]) == ({"a": 1}, "new", "me")
    with pytest.raises(BadMessage, match="a reply is passed on at once"):
        await lab.producer.reply(answer_of(answer), Message("", b"x", delay_level=1))


def answer_of(message: ReceivedMessage) -> ReceivedMessage:
    """A message that could be answered."""
    text = message.record.properties_text + b"\x02CLUSTER\x01DefaultCluster"
    return ReceivedMessage(message.record._replace(properties_text=text), message.queue)


async def test_wrong_registrations_are_refused(lab: Lab) -> None:
    rpc = RPC("Calls", "price-service", nameserver=lab.address)

    async def price() -> None: ...

    assert rpc.method(price) is price
    with pytest.raises(UsageError, match="price is registered already"):
        rpc.method(price)
    with pytest.raises(UsageError, match="cannot be used"):
        rpc.method(name="a b")(price)
    with pytest.raises(UsageError, match="The method is of type int"):
        rpc.method(3)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="The service is of type int"):
        rpc.proxy(3)  # type: ignore[call-overload]
    async with rpc:
        with pytest.raises(StateError, match="register methods before"):
            rpc.method(name="another")(price)


class BlockingPrices(Protocol):
    def price(self, item: str) -> Price: ...


def test_the_blocking_face_answers_and_asks(address: str) -> None:
    serving = sync.RPC("Calls", "price-service", nameserver=address)

    @serving.method
    def price(item: str) -> Price:
        if not item:
            raise LookupError("nothing")
        return Price(item, 350)

    with sync.RPC("Calls", "shop", nameserver=address, timeout=30) as asking, serving:
        assert asking.call("price", ["salad"]) == {"item": "salad", "cents": 350}
        assert asking.proxy().price("salad") == {"item": "salad", "cents": 350}
        assert asking.proxy(BlockingPrices).price("salad") == Price("salad", 350)
        with pytest.raises(RemoteError, match="LookupError: nothing"):
            asking.call("price", [""])
