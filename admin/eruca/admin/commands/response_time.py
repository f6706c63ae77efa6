"""Commands that measure the response time (RT) of sends."""

from __future__ import annotations

import asyncio
import time

from eruca.admin.command import TOPIC, Job, command
from eruca.admin.errors import AdminError
from eruca.admin.messages import choose_queue, send, writable_queues
from eruca.admin.posix import Option
from eruca.admin.text import seconds_text, shown

_SENT = "%-32s  %-4s  %-20s    %s"


@command(
    "sendMsgStatus",
    "send messages to a broker and show the response times",
    Option("b", "brokerName", "the broker's name, which is a topic too", required=True),
    Option("s", "messageSize", "bytes of a message; default 128"),
    Option("c", "count", "number of messages; default 50"),
)
async def send_msg_status(job: Job) -> None:
    """310 in a loop, after one that is not printed."""
    topic, size = job.text("b"), job.number("s", 128)
    queue, address = await choose_queue(job.admin, topic, None, None)
    await send(job.admin, queue, address, b"a" * 16, {})
    for _ in range(job.number("c", 50)):
        start = time.monotonic()
        sent = await send(job.admin, queue, address, b"a" * size, {})
        job.line(f"rt={int((time.monotonic() - start) * 1000)}ms, SendResult={sent}")


@command(
    "checkMsgSendRT",
    "send messages to the queues of a topic and show the response times",
    TOPIC,
    Option("a", "amount", "number of messages; default 100"),
    Option("s", "size", "bytes of a message; default 128"),
)
async def check_send_time(job: Job) -> None:
    """310, queue after queue; the mean leaves the first out."""
    queues = list((await writable_queues(job.admin, job.text("t"))).items())
    amount, body = job.number("a", 100), b"a" * job.number("s", 128)
    job.row(_SENT, "#Broker Name", "#QID", "#Send Result", "#RT")
    times = []
    for number in range(amount):
        queue, address = queues[number % len(queues)]
        start = time.monotonic()
        try:
            await send(job.admin, queue, address, body, {})
            stored = True
        except AdminError as error:
            job.report(f"mqadmin checkMsgSendRT: {error}")
            stored = False
        times.append(int((time.monotonic() - start) * 1000))
        job.row(_SENT, queue.broker_name, queue.queue_id, shown(stored), times[-1])
    job.line(f"Avg RT: {sum(times[1:]) / max(1, amount - 1):.2f}")


@command(
    "clusterRT",
    "send messages to every broker periodically and show the response times",
    Option("a", "amount", "messages of a round; default 100"),
    Option("s", "size", "bytes of a message; default 128"),
    Option("c", "cluster", "only this cluster"),
    Option("p", "print log", "true: print a log line with the time; default false"),
    Option("m", "machine room", "the machine room in a log line; default noname"),
    Option("i", "interval", "seconds between two rounds; default 10"),
)
async def cluster_send_time(job: Job) -> None:
    """310 to the topic that is named as each broker, until interrupted; the mean leaves the first out."""
    as_log = job.truth("p", False)
    if not as_log:
        job.row("%-24s  %-24s  %-4s  %-8s  %-8s", "#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
    while True:
        table = (await job.admin.clusters()).cluster_addr_table
        wanted = job.text("c")
        if wanted and wanted not in table:
            raise AdminError(f"cluster [{wanted}] not exist")
        for cluster in [wanted] if wanted else table:
            for broker in sorted(table[cluster]):
                mean, stored, failed = await _round(job, broker)
                if as_log:
                    now = seconds_text(time.time_ns() // 1_000_000)
                    job.line(f"{now}|{job.text('m', 'noname')}|{cluster}|{broker}|{mean:.0f}")
                else:
                    job.row("%-24s  %-24s  %-8s  %-16s  %-16s", cluster, broker, f"{mean:.2f}", stored, failed)
        job.finish()
        await asyncio.sleep(job.number("i", 10))


async def _round(job: Job, broker: str) -> tuple[float, int, int]:
    """Mean time in ms, number of messages stored, number failed."""
    amount, body = job.number("a", 100), b"a" * job.number("s", 128)
    times, failed = [], 0
    for _ in range(amount):
        start = time.monotonic()
        try:
            queue, address = await choose_queue(job.admin, broker, None, None)
            await send(job.admin, queue, address, body, {})
        except AdminError as error:
            failed += 1
            job.report(f"mqadmin clusterRT: {error}")
        times.append((time.monotonic() - start) * 1000)
    return sum(times[1:]) / max(1, amount - 1), amount - failed, failed
