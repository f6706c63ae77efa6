"""What requests cost the broker, without sockets: microseconds of CPU per message, for Latin and for Chinese text.

Run: ``python -m tests.bench.broker_micro [rows…]`` with rows such as ``send-chinese-json``; all rows without arguments.
The figures of one text and the other are to be compared, with the native step and (``ERUCA_PURE=1``) without it. Prints
the least of five rounds.

``acl``, ``white`` and ``open`` are sends: signed ones at a broker with access control, the same from a white address,
and unsigned ones at a broker without access control that has no fast path, which the first are compared with.

glibc may return memory to the kernel after each read and fault it in again, in one process and not in the next: a pull
then costs 0.55 or 0.85 us. ``MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_MMAP_THRESHOLD_=268435456`` prevents it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from eruca.broker.broker import Broker
from eruca.broker.handlers import TABLES
from eruca.broker.handlers.access_rules import RULES
from eruca.broker.handlers.fast_path import fast_path
from eruca.broker.services.halves import HALF
from eruca.protocol import api, frame
from eruca.protocol.headers.offsets import UpdateConsumerOffset
from eruca.protocol.headers.pull import SUBSCRIPTION, PullMessage, QueryMessage
from eruca.protocol.headers.send import EndTransaction, SendMessageV2, SendReply
from eruca.protocol.message import parse_offset_message_id
from eruca.protocol.record import BatchEntry, encode_batch
from eruca.protocol.signature import Credentials
from eruca.remoting import Connection, Router
from eruca.remoting.access.guard import Guard
from eruca.remoting.connection_limits import ConnectionLimits, ServerLoad
from eruca.remoting.rpc_hooks import fields_to_sign
from tests.support.desk import START, Desk

ROUNDS = 5
MESSAGES = 2048
AT_ONCE = 64
"""Requests in one read."""
BATCH = 32
KEYS = {"latin": "order", "chinese": "订单"}
TAGS = {"latin": "TagA", "chinese": "标签"}
KINDS = {"json": frame.JSON, "binary": frame.ROCKETMQ}
BODY = bytes(128)
SENDS = ("send", "open", "acl", "white")
WHITE = {"acl": "10.9.9.*", "white": "10.1.2.*"}
"""The global white addresses of the brokers with access control."""
ACCOUNT = Credentials("ordinary", "its-secret-key")
ACCOUNTS = """\
globalWhiteRemoteAddresses: ['{}']
accounts: [{{accessKey: ordinary, secretKey: its-secret-key, defaultGroupPerm: SUB, topicPerms: [T=PUB]}}]
"""


class Sink(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.1.2.3", 4567), "sockname": ("10.1.2.4", 10911)})
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def take(self) -> bytes:
        data, self.written = b"".join(self.written), []
        return data


class Load:
    """Requests of one script and header serialization, given to one broker."""

    def __init__(self, desk: Desk, what: str, script: str, kind: int) -> None:
        self.broker = desk.broker
        self.signer = ACCOUNT if what == "acl" else None
        self.script = script
        self.kind = kind
        self._opaque = itertools.count(1)
        self.sink = Sink()
        router = self.router(what)
        limits = ServerLoad(ConnectionLimits())
        self.connection = Connection(router, budgets=limits.budgets)
        self.connection.connection_made(self.sink)

    def router(self, what: str) -> Router[Broker]:
        fast = fast_path(self.broker)
        if self.broker.accounts is None:
            return Router(self.broker, TABLES, fast_path=None if what == "open" else fast)
        guard = Guard(self.broker, RULES, self.broker.accounts, self.broker.refusals)
        return Router(self.broker, TABLES, guards=[guard], fast_path=guard.for_white_addresses(fast))

    def request(self, code: int, header: Any, body: bytes = b"") -> bytes:
        extra = self.signer(fields_to_sign(header, None, self.kind), body) if self.signer is not None else None
        return (
            frame.encode(self.kind, code, next(self._opaque), 0, header, len(body), language="JAVA", extra=extra) + body
        )

    def properties(self, number: int) -> str:
        key = f"{KEYS[self.script]}-{number:06d}"
        return f"KEYS\x01{key}\x02UNIQ_KEY\x017F0000010A2B18B4AAC2{number:012X}\x02TAGS\x01{TAGS[self.script]}"

    def send(self, number: int, text: str, body: bytes = BODY, **more: Any) -> bytes:
        header = SendMessageV2(
            producer_group="pg",
            topic="T",
            queue_id=number % 4,
            born_timestamp=START + number,
            flag=0,
            properties=text,
            reconsume_times=0,
            **{"sys_flag": 0} | more,
        )
        code = api.SEND_BATCH_MESSAGE.code if header.batch else api.SEND_MESSAGE_V2.code
        return self.request(code, header, body)

    async def feed(self, requests: list[bytes]) -> list[bytes]:
        """The replies to requests of which many come in one read."""
        replies = []
        for first in range(0, len(requests), AT_ONCE):
            self.connection.data_received(b"".join(requests[first : first + AT_ONCE]))
            for _ in range(3):  # op messages follow at the end of the turn, their replies after it
                await asyncio.sleep(0)
            self.broker.store.drain()
            replies.append(self.sink.take())
        return replies

    # ------------------------------------------------------------------ rows: messages, and what makes their requests

    def sends(self) -> list[bytes]:
        return [self.send(number, self.properties(number) + "\x02WAIT\x01true") for number in range(MESSAGES)]

    def batches(self) -> list[bytes]:
        made = []
        for first in range(0, MESSAGES, BATCH):
            entries = [BatchEntry(0, BODY, self.properties(first + number).encode()) for number in range(BATCH)]
            made.append(self.send(first, "WAIT\x01true\x02", encode_batch(entries), batch=True))
        return made

    def halves(self) -> list[bytes]:
        texts = ["TRAN_MSG\x01true\x02PGROUP\x01pg\x02" + self.properties(number) for number in range(MESSAGES)]
        return [self.send(number, text, sys_flag=4) for number, text in enumerate(texts)]

    def reads(self) -> list[bytes]:
        """Pulls of all messages of a queue."""
        return self.pulls("*")

    def pulls(self, subscription: str = "") -> list[bytes]:
        header = PullMessage(
            consumer_group="g",
            topic="T",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=BATCH,
            sys_flag=SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=subscription or TAGS[self.script],
            sub_version=0,
        )
        made = []
        for number in range(MESSAGES // BATCH):
            header.queue_id, header.queue_offset = number % 4, number // 4 * BATCH
            made.append(self.request(api.PULL_MESSAGE.code, header))
        return made

    def queries(self) -> list[bytes]:
        header = QueryMessage(topic="T", key="", max_num=8, begin_timestamp=0, end_timestamp=2 * START)
        made = []
        for number in range(0, MESSAGES, BATCH):
            header.key = f"{KEYS[self.script]}-{number:06d}"
            made.append(self.request(api.QUERY_MESSAGE.code, header))
        return made

    def commits(self) -> list[bytes]:
        """Offsets that consumers commit: none of a message, but a consumer sends one for each queue every 5 s."""
        header = UpdateConsumerOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=0)
        made = []
        for number in range(MESSAGES):
            header.queue_id, header.commit_offset = number % 4, number
            made.append(self.request(api.UPDATE_CONSUMER_OFFSET.code, header))
        return made

    def ends(self, replies: list[bytes]) -> list[bytes]:
        """The commits of half messages that were answered so."""
        made = []
        for head in heads(b"".join(replies)):
            reply = frame.typed(SendReply, head)
            header = EndTransaction(
                producer_group="pg",
                tran_state_table_offset=reply.queue_offset,
                commit_log_offset=parse_offset_message_id(reply.msg_id)[1],
                commit_or_rollback=8,
                msg_id="7F0000010A2B18B4AAC2000000000001",
            )
            made.append(self.request(api.END_TRANSACTION.code, header))
        return made


def heads(data: bytes) -> Iterator[frame.Head[Any]]:
    at = 0
    while (found := frame.split(data, at)) is not None:
        serialization, start, body_at, at = found
        yield frame.read(serialization, data[start:body_at])


async def timed(work: Awaitable[list[bytes]]) -> tuple[float, list[bytes]]:
    begin = time.thread_time()
    replies = await work
    return (time.thread_time() - begin) * 1e6, replies


async def cost(load: Load, make: Callable[[], list[bytes]], messages: int) -> float:
    """Microseconds per message in one round."""
    spent, replies = await timed(load.feed(make()))
    if make == load.halves:
        ends = load.ends(replies)
        assert len(ends) == messages
        took, replies = await timed(load.feed(ends))
        assert [head.code for head in heads(b"".join(replies))] == [0] * messages
        spent += took
    return spent / messages


def accounts_file(folder: Path, what: str) -> str:
    """The access file of a broker with access control."""
    file = folder / "accounts.yml"
    file.write_text(ACCOUNTS.format(WHITE[what]))
    return str(file)


async def run(row: str) -> float:
    what, script, kind = row.split("-")
    with tempfile.TemporaryDirectory(prefix="eruca-broker-") as folder:
        desk = Desk(Path(folder))
        desk.config.store.mapped_file_size_commit_log = 256 << 20
        desk.config.store.max_hash_slot_num = 1 << 20
        desk.config.store.max_index_num = 1 << 20
        if what in WHITE:
            desk.config.access.acl_enable = True
            desk.config.access.acl_file = accounts_file(desk.folder, what)
        await desk.start()
        desk.topic("T", queues=4)
        desk.topic(HALF)
        await desk.broker.topics.saved()
        load = Load(desk, what, script, KINDS[kind])
        for _ in range(3):  # the forms are learned, and there is something to pull
            await load.feed(load.sends())
        make, messages = {
            **dict.fromkeys(SENDS, (load.sends, MESSAGES)),
            "batch": (load.batches, MESSAGES),
            "half": (load.halves, MESSAGES),
            "pull": (load.pulls, MESSAGES),
            "read": (load.reads, MESSAGES),
            "commit": (load.commits, MESSAGES),
            "query": (load.queries, MESSAGES // BATCH),
        }[what]
        await load.feed(make())
        least = min([await cost(load, make, messages) for _ in range(ROUNDS)])
        await desk.stop()
    return least


def main() -> None:
    things = (*SENDS, "batch", "half", "pull", "read", "commit", "query")
    names = ["-".join(each) for each in itertools.product(things, KEYS, KINDS)]
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("rows", nargs="*", default=names, metavar="row", help=f"all by default: {', '.join(names)}")
    for row in parse.parse_args().rows:
        print(f"{row:24} {asyncio.run(run(row)):8.2f} us", flush=True)


if __name__ == "__main__":
    main()
