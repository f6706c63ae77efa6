"""What the examples of mqadmin's help are about: topic Orders, the group shop, and an operator at a shell.

Owns what is there before an example is typed, each thing under a word, and what of this test stands in the place of an
example's addresses and ids. Knows no example.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from eruca.admin.cli import run
from eruca.admin.client import Admin
from eruca.admin.messages import send
from eruca.client import Message, Producer
from eruca.protocol.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo, ProcessQueueInfo, SubscriptionData
from eruca.protocol.queues import MessageQueue
from tests.admin.conftest import Done, Lab, running_lab
from tests.admin.test_forms import Screen
from tests.broker.elected import Group
from tests.support.accounts import ADMIN, Account, write_accounts
from tests.support.names import Names
from tests.support.peers import Pushed

MEMBER = "10.0.0.1@a"
MANY = 4101
"""Messages of a queue that has many."""
CLUSTER = "DefaultCluster"


class Operator:
    """An operator in a folder of his own, in front of a cluster."""

    def __init__(self, folder: Path, nameserver: str, broker: str) -> None:
        self.folder = folder
        self.environment = {"NAMESRV_ADDR": nameserver, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        self.places = {
            "10.0.0.1:10911": broker,
            "[10.0.0.1:9876]": f"[{nameserver}]",
            "127.0.0.1:8099": "127.0.0.1:0",
            "/tmp/export": str(folder / "export"),
            "AC11000100002A9F0000000000000000": f"7F000001{int(broker.rpartition(':')[2]):08X}0000000000000000",
        }
        """What stands in an example, and what here."""

    def here(self, text: str) -> str:
        """The text of an example, in this cluster."""
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text

    async def types(self, words: list[str], given: bytes = b"") -> Done:
        """Run a command to its end; ``given`` stands at its standard input."""
        out, err = Screen(), Screen()
        with standard_input(given) as source:
            status = await run(words, self.environment, out, err, source=source)
            await _read()
        return Done(status, out.getvalue(), err.getvalue())

    async def watches(self, words: list[str], shown: str) -> Done:
        """Run a command until it has shown a text, then interrupt it; how it ended, if it did so before."""
        out, err = Screen(), Screen()
        running = asyncio.create_task(run(words, self.environment, out, err))
        seen = asyncio.create_task(out.shows(shown))
        await asyncio.wait({running, seen}, return_when=asyncio.FIRST_COMPLETED)
        status = running.result() if running.done() else 130
        for task in (running, seen):
            task.cancel()
        await asyncio.gather(running, seen, return_exceptions=True)
        return Done(status, out.getvalue(), err.getvalue())


@contextmanager
def standard_input(given: bytes) -> Iterator[int]:
    """The descriptor of a pipe with this in it."""
    source, end = os.pipe()
    try:
        os.write(end, given)
        os.close(end)
        yield source
    finally:
        os.close(source)


async def _read() -> None:
    """Wait until no thread reads a standard input: it would read from the next pipe that has the number."""
    for thread in threading.enumerate():
        if thread.name == "standard input":
            await asyncio.to_thread(thread.join)


# ------------------------------------------------------------------ clusters


@asynccontextmanager
async def plain_cluster(folder: Path, *there: str) -> AsyncIterator[Operator]:
    """One broker, and what is ``there``, by the words of PREPARATIONS."""
    async with running_lab(folder) as lab:
        operator = Operator(folder, lab.nameserver, lab.broker)
        for word in there:
            await PREPARATIONS[word](lab, operator)
        yield operator


@asynccontextmanager
async def guarded_cluster(folder: Path) -> AsyncIterator[Operator]:
    """One broker with access control, and the accounts of an administrator and of the examples."""
    home = write_accounts(folder / "rocketmq", [ADMIN, Account("orders-app")])
    account = ADMIN.credentials
    (home / "conf" / "tools.yml").write_text(f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n")
    async with running_lab(folder, accounts=home) as lab:
        operator = Operator(folder, lab.nameserver, lab.broker)
        operator.environment["ROCKETMQ_HOME"] = str(home)
        yield operator


@asynccontextmanager
async def elected_cluster(folder: Path) -> AsyncIterator[Operator]:
    """Two brokers that elect their master; broker 1 is it."""
    async with Names(folder / "names") as names, Group(folder, names) as group:
        for number in (1, 2):
            await group.start(number, broker_cluster_name=CLUSTER)
        master = await group.led({1, 2})
        yield Operator(folder, names.address, master.app.address)


# ------------------------------------------------------------------ what is there


async def _orders(lab: Lab, operator: Operator) -> None:
    """Three messages in the first queue of Orders."""
    await lab.topic("Orders", 8)
    [first] = await lab.send("Orders", "one", tags="paid", keys="order-17")
    await lab.send("Orders", "two", tags="TagA")
    await lab.send("Orders", "three", tags="sent")
    operator.places["AC110001000018B4AAC2000000000000"] = first


async def _stopped(lab: Lab, _: Operator) -> None:
    await lab.done("updateTopicPerm", "-t", "Orders", "-c", CLUSTER, "-p", "4")


async def _many(lab: Lab, _: Operator) -> None:
    """So many messages in the first queue of Orders that the example's offset is there."""
    async with Producer("makers", nameserver=lab.nameserver) as producer:
        queue = MessageQueue("Orders", "broker-a", 0)
        await asyncio.gather(*(producer.send(Message("Orders", b"an order"), queue=queue) for _ in range(MANY)))


async def _copy(lab: Lab, _: Operator) -> None:
    await lab.topic("OrdersCopy")


def _group(name: str) -> Callable[[Lab, Operator], Awaitable[None]]:
    """A group that has consumed a message of Orders, and is offline."""

    async def create(lab: Lab, _: Operator) -> None:
        await lab.topic(f"%RETRY%{name}")
        await lab.done("updateSubGroup", "-g", name, "-c", CLUSTER)
        await lab.commit(name, "Orders", *[1] + [0] * 7)

    return create


async def _member(lab: Lab, _: Operator) -> None:
    """The member of the examples, online: it tells its state, and consumes what it is given."""

    def answer(pushed: Pushed) -> tuple[int, bytes] | None:
        state = ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            subscription_set=[SubscriptionData(topic="Orders", sub_string="*")],
            mq_table={MessageQueue("Orders", "broker-a", queue): ProcessQueueInfo() for queue in range(8)},
            jstack="main  TID: 1\n",
        )
        consumed = ConsumeMessageDirectlyResult(consume_result="CR_SUCCESS")
        answers = {307: state.encode(), 309: consumed.encode()}
        return (0, answers[pushed.code]) if pushed.code in answers else None

    await lab.member("shop", "Orders", client_id=MEMBER, answering=answer)


async def _payers(lab: Lab, _: Operator) -> None:
    await lab.producer("payers")


async def _letter(lab: Lab, _: Operator) -> None:
    """A dead letter of shop."""
    await lab.topic("%DLQ%shop")
    async with Admin([lab.nameserver]) as admin:
        await send(admin, MessageQueue("%DLQ%shop", "broker-a", 0), lab.broker, b"one", {"RETRY_TOPIC": "Orders"})


async def _trace(lab: Lab, operator: Operator) -> None:
    """A message whose producer has told of it."""
    async with Producer("makers", nameserver=lab.nameserver, trace=True) as producer:
        sent = await producer.send(Message("Orders", b"traced"))
    operator.places["AC110001000018B4AAC2000000000000"] = sent.message_id


async def _order(lab: Lab, _: Operator) -> None:
    await lab.done("updateOrderConf", "-t", "Orders", "-m", "put", "-v", "broker-a:8")


async def _values(lab: Lab, _: Operator) -> None:
    await lab.done("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "Orders", "-v", "broker-a:8")
    await lab.done("updateKvConfig", "-s", "MY_SPACE", "-k", "owner", "-v", "team-a")


async def _wiped(lab: Lab, _: Operator) -> None:
    await lab.done("wipeWritePerm", "-b", "broker-a")


async def _context(lab: Lab, operator: Operator) -> None:
    await operator.types(["context", "add", "prod", "-n", lab.nameserver])


async def _declared(_: Lab, operator: Operator) -> None:
    (operator.folder / "cluster.yaml").write_text("topics:\n- name: Wanted\n")


async def _offsets(_: Lab, operator: Operator) -> None:
    """Files of offsets of shop, as a reset and ``offsets export`` write them."""
    queues = [{"topic": "Orders", "brokerName": "broker-a", "queueId": 0, "offset": 2}]
    for name in ("undo.json", "shop.json"):
        (operator.folder / name).write_text(json.dumps({"group": "shop", "queues": queues}))


PREPARATIONS: dict[str, Callable[[Lab, Operator], Awaitable[None]]] = {
    "orders": _orders,
    "stopped": _stopped,
    "many": _many,
    "copy": _copy,
    "shop": _group("shop"),
    "billing": _group("billing"),
    "tests": _group("shop-test"),
    "member": _member,
    "payers": _payers,
    "letter": _letter,
    "trace": _trace,
    "order": _order,
    "values": _values,
    "wiped": _wiped,
    "context": _context,
    "declared": _declared,
    "offsets": _offsets,
}
"""What may be there, by its word."""
