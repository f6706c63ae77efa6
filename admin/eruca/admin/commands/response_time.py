"""Commands that measure the response time (RT) of sends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

from eruca.admin.command import TOPIC, Job, Shown, command
from eruca.admin.errors import AdminError, NotFound
from eruca.admin.messages import choose_queue, send, writable_queues
from eruca.admin.posix import Option
from eruca.admin.results.answer import Moment
from eruca.admin.results.messages import ResponseTime, SentMessage, sent_message
from eruca.admin.text import seconds_text, shown
from eruca.protocol.queues import MessageQueue

_LARGEST = 16 << 20
"""Bytes of the largest frame that a server takes; a message is smaller."""
_SENT = "%-32s  %-4s  %-20s    %s"


@command(
    "sendMsgStatus",
    Option("b", "brokerName", "the broker's name, which is a topic too", required=True, kind="broker"),
    Option("s", "messageSize", "bytes of a message; default 128", kind="number", most=_LARGEST),
    Option("c", "count", "number of messages; default 50", kind="number", least=1),
    results=(SentMessage,),
)
async def send_msg_status(job: Job) -> AsyncIterator[Shown]:
    """310 in a loop, after one that is not printed. A topic that is named as no broker would be created."""
    topic, size = job.text("b"), job.number("s", 128)
    known = (await job.admin.clusters()).broker_addr_table
    if topic not in known:
        raise NotFound(f"the nameserver knows no broker {topic}; it knows: {', '.join(sorted(known)) or 'none'}")
    queue, address = await choose_queue(job.admin, topic, None, None)
    await send(job.admin, queue, address, b"a" * 16, {})
    for _ in range(job.number("c", 50)):
        start = time.monotonic()
        sent = await send(job.admin, queue, address, b"a" * size, {})
        took = time.monotonic() - start
        yield Shown(sent_message(sent, took), partial(job.line, f"rt={int(took * 1000)}ms, SendResult={sent}"))


@command(
    "checkMsgSendRT",
    TOPIC,
    Option("a", "amount", "number of messages; default 100", kind="number", least=1),
    Option("s", "size", "bytes of a message; default 128", kind="number", most=_LARGEST),
    results=(SentMessage,),
)
async def check_send_time(job: Job) -> AsyncIterator[Shown]:
    """310, queue after queue; the mean leaves the first out."""
    queues = list((await writable_queues(job.admin, job.text("t"))).items())
    amount, body = job.number("a", 100), b"a" * job.number("s", 128)
    yield Shown(None, partial(job.row, _SENT, "#Broker Name", "#QID", "#Send Result", "#RT"))
    times = []
    for number in range(amount):
        queue, address = queues[number % len(queues)]
        start = time.monotonic()
        try:
            sent = await send(job.admin, queue, address, body, {})
            took = time.monotonic() - start
            result = sent_message(sent, took)
        except AdminError as error:
            job.report(f"mqadmin checkMsgSendRT: {error}", error.status)
            took = time.monotonic() - start
            result = _failed(queue, took)
        times.append(int(took * 1000))
        row = (queue.broker_name, queue.queue_id, shown(result.id is not None), times[-1])
        yield Shown(result, partial(job.row, _SENT, *row))
    yield Shown(None, partial(job.line, f"Avg RT: {sum(times[1:]) / max(1, amount - 1):.2f}"))


def _failed(queue: MessageQueue, seconds: float) -> SentMessage:
    return SentMessage(
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        status="FAILED",
        id=None,
        offset_id=None,
        queue_offset=None,
        ms=round(seconds * 1000, 3),
    )


@command(
    "clusterRT",
    Option("a", "amount", "messages of a round; default 100", kind="number", least=1),
    Option("s", "size", "bytes of a message; default 128", kind="number", most=_LARGEST),
    Option("c", "cluster", "only this cluster", kind="cluster"),
    Option("p", "print log", "true: print a log line with the time; default false", kind="boolean"),
    Option("m", "machine room", "the machine room in a log line; default noname"),
    Option("i", "interval", "seconds between two rounds; default 10", kind="number", least=1),
    results=(ResponseTime,),
)
async def cluster_send_time(job: Job) -> AsyncIterator[Shown]:
    """310 to the topic that is named as each broker, until interrupted; the mean leaves the first out."""
    as_log = job.truth("p", False)
    if not as_log:
        titles = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
        yield Shown(None, partial(job.row, "%-24s  %-24s  %-4s  %-8s  %-8s", *titles))
    while True:
        table = (await job.admin.clusters()).cluster_addr_table
        wanted = job.text("c")
        if wanted and wanted not in table:
            raise NotFound(f"cluster [{wanted}] not exist")
        for cluster in [wanted] if wanted else table:
            for broker in sorted(table[cluster]):
                result = await _round(job, cluster, broker)
                yield Shown(result, partial(_print_round, job, result, as_log))
        job.finish()
        await asyncio.sleep(job.number("i", 10))


def _print_round(job: Job, result: ResponseTime, as_log: bool) -> None:
    if as_log:
        at = seconds_text(result.at.ms)
        job.line(f"{at}|{job.text('m', 'noname')}|{result.cluster}|{result.broker}|{result.mean_ms:.0f}")
    else:
        row = (result.cluster, result.broker, f"{result.mean_ms:.2f}", result.sent, result.failed)
        job.row("%-24s  %-24s  %-8s  %-16s  %-16s", *row)


async def _round(job: Job, cluster: str, broker: str) -> ResponseTime:
    """Some sends to the topic that is named as a broker."""
    amount, body = job.number("a", 100), b"a" * job.number("s", 128)
    times, failed = [], 0
    for _ in range(amount):
        start = time.monotonic()
        try:
            queue, address = await choose_queue(job.admin, broker, None, None)
            await send(job.admin, queue, address, body, {})
        except AdminError as error:
            failed += 1
            job.report(f"mqadmin clusterRT: {error}", error.status)
        times.append((time.monotonic() - start) * 1000)
    return ResponseTime(
        at=Moment.at(time.time_ns() // 1_000_000),
        cluster=cluster,
        broker=broker,
        mean_ms=sum(times[1:]) / max(1, amount - 1),
        sent=amount - failed,
        failed=failed,
    )
