"""A user's program under the type checker: what it gets has types, and wrong calls are found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
from eruca.client import App, Hook, Later, LitePullConsumer, Message, Producer, PushConsumer, ReceivedMessage, lag
from eruca.client import ClientSettings, Credentials, TransactionProducer, TransactionState, assign, selectors, sync
from eruca.client import RPC, Decision, Reject, Suspend
from abc import ABC, abstractmethod
from typing import Protocol
from eruca.client.errors import SendFailed
from eruca.client.hooks import SendContext
from eruca.client.serializers import JSON, Json

app = App()

@app.consumer("Orders", "kitchen", expression="new")
async def cook(message: ReceivedMessage) -> None: ...

@app.consumer("Bills", "cashier")
def collect(message: ReceivedMessage) -> Later | None:
    return Later(delay_level=3) if message.reconsume_times else None

class Audit(Hook):
    def before_send(self, context: SendContext) -> None:
        context.properties["stamp"] = context.producer_group

async def each(message: ReceivedMessage) -> None: ...
async def chunk(messages: list[ReceivedMessage]) -> Later | None: ...
def step(message: ReceivedMessage) -> Suspend | None: return Suspend()
def give_up(message: ReceivedMessage) -> Suspend | Reject | None: return Reject("no such order")
def decide(messages: list[ReceivedMessage]) -> Decision: return Decision.COMMIT
def number(x: int) -> None: ...

def listeners(orderly: bool) -> None:
    reveal_type(PushConsumer("g", each))
    PushConsumer("g", lambda message: print(message.body))
    PushConsumer("g", chunk, consume_message_batch_max_size=10, concurrency=3)
    PushConsumer("g", step, orderly=True)
    PushConsumer("g", decide, orderly=True, auto_commit=False, consume_message_batch_max_size=10)
    PushConsumer("g", each, orderly=orderly)
    reveal_type(sync.PushConsumer("g", step, orderly=True))
    sync.PushConsumer("g", chunk, consume_message_batch_max_size=10)
    PushConsumer("g", step, ordered_by=lambda message: message.keys[0])
    PushConsumer("g", give_up, ordered_by=lambda message: message.keys[0])
    PushConsumer("g", give_up, orderly=True)
    PushConsumer("g", number)  # wrong
    PushConsumer("g", decide, ordered_by=lambda message: message.tags, consume_message_batch_max_size=10)  # wrong
    PushConsumer("g", step, ordered_by="keys")  # wrong
    PushConsumer("g", chunk)  # wrong
    PushConsumer("g", each, consume_message_batch_max_size=10)  # wrong
    PushConsumer("g", step)  # wrong
    PushConsumer("g", lambda message: 5)  # wrong
    PushConsumer("g", chunk, orderly=True, consume_message_batch_max_size=10)  # wrong
    PushConsumer("g", each, auto_commit=False)  # wrong
    PushConsumer("g", each, concurency=3)  # wrong
    sync.PushConsumer("g", chunk)  # wrong
    app.consumer("Refunds", "refunds", concurency=3)  # wrong
    app.producer("billing", retrys=3)  # wrong
    Message.of("T", {"a": 1}, JSON, tagz="x")  # wrong

class Prices(Protocol):
    async def price(self, item: str, amount: int = 1) -> int: ...
class Bills(ABC):
    @abstractmethod
    def total(self, number: int) -> int: ...

async def calls() -> None:
    async with RPC("Prices", "orders-service") as rpc:
        reveal_type(await rpc.proxy(Prices).price("salad", amount=2))
        reveal_type(await rpc.proxy(timeout=3).price("salad"))
        reveal_type(await rpc.call("price", ["salad"], returns=int))
        reveal_type(await rpc.call("prices", returns=list[int]))
        reveal_type(await rpc.call("price", ["salad"]))
        await rpc.proxy(Prices).price("salad", 2, 3)  # wrong
    with sync.RPC("Prices", "orders-service") as blocking:
        reveal_type(blocking.proxy(Bills).total(7))
        reveal_type(blocking.call("price", ["salad"], returns=int))
        reveal_type(blocking.call("price", ["salad"]))
        blocking.call("price", ["salad"], timeot=3)  # wrong
    ClientSettings(nameserver=["mq1:9876", "mq2:9876"])
    ClientSettings(nameserver=("mq1:9876", "mq2:9876"))
    ClientSettings(nameserver=5)  # wrong

async def main() -> None:
    settings = ClientSettings(credentials=Credentials("key", "secret"))
    async with Producer("p", settings=settings, hooks=[Audit()]) as producer:
        reveal_type(await producer.send(Message("T", b"x", delay=3), selector=selectors.by_hash, arg="k", timeout=2))
        reveal_type(await producer.start_send(Message.of("T", {"a": 1}, JSON)))
        try:
            await producer.send_oneway(Message("T", b"x"))
        except SendFailed as error:
            reveal_type(error.brokers)
    async with PushConsumer("g", strategy=assign.by_circle).subscribe("T") as consumer:
        async for delivery in consumer:
            reveal_type(delivery)
            reveal_type(delivery.value_by(Json(list[int])))
            reveal_type(delivery.value_by(Json(int | None)))
    async with LitePullConsumer("g").subscribe("T") as lite:
        reveal_type(await lite.poll())
        async for message in lite:
            reveal_type(message)
        async for batch in lite.batches():
            reveal_type(batch)
    async with TransactionProducer("g", lambda message: TransactionState.UNKNOWN) as dealer:
        done = await dealer.send_in_transaction(Message("T", b"x"), lambda message, id: TransactionState.COMMIT)
        reveal_type(done.state)
    reveal_type((await lag("g", "T"))[0].difference)
    await producer.send("a text")  # wrong
    producer.send_batch([b"x"])  # wrong, twice

def blocking() -> None:
    with sync.Producer("p") as producer:
        reveal_type(producer.send(Message("T", b"x")))
        reveal_type(producer.start_send(Message("T", b"x")))
        producer.send(Message("T", b"x"), timeout="soon")  # wrong
    with sync.PushConsumer("g").subscribe("T") as consumer:
        for delivery in consumer:
            reveal_type(delivery)
    with sync.PullConsumer("g", max_reconsume_times="many") as puller:  # wrong
        reveal_type(puller.fetch_queues("T"))
"""
TYPES = [
    *("PushConsumer", "PushConsumer"),
    *("int", "Any", "int", "list[int]", "Any", "int", "int", "Any"),
    *("SendResult", "SendResult", "tuple[str, ...]", "Delivery", "list[int]", "Any"),
    *("list[ReceivedMessage]", "ReceivedMessage", "list[ReceivedMessage]"),
    *("TransactionState", "int | None"),
    *("SendResult", "Future[SendResult]", "Delivery", "list[MessageQueue]"),
]


def test_a_program_of_a_user(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="the type checker is installed for one Python only")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    said = subprocess.run([*command, file.name], cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    shown = re.findall(r'note: Revealed type is "(.*)"', said)
    assert [re.sub(r"\b[a-z_]+(\.[a-z_]+)*\.(?=[A-Z])|builtins\.", "", each) for each in shown] == TYPES, said
    lines = PROGRAM.splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if "# wrong" in line]
    assert sorted({int(each) for each in re.findall(r"^program\.py:(\d+): error:", said, re.MULTILINE)}) == wrong, said
