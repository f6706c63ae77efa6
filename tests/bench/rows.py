"""What is measured: each row is one kind of load by the same Java program against either system.

Owns the list of rows and the measurement of one: figures of the client, and CPU of the broker's
process from /proc. Knows nothing of how often, in which order, or how it is printed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.java import Judge

Cluster = ApacheCluster | ErucaCluster
TOPIC = "Bench"
BACKLOG = "Backlog"
QUEUES = 8
_runs = itertools.count(1)


@dataclass(frozen=True, eq=False)
class Row:
    """A kind of load; `load` goes to the Java program, `headers` is how the client writes its headers."""

    name: str
    title: str
    load: dict[str, Any] = field(default_factory=dict)
    headers: str = "ROCKETMQ"
    sync_flush: bool = False


@dataclass(frozen=True)
class Measured:
    """One run of a row."""

    rate: float
    """Messages a second, as the client saw it."""
    cpu_us: float
    """CPU microseconds a message of the broker's process, user and system."""
    p50_us: float
    p99_us: float


SENDS = (
    Row("sync-1", "sync send, 1 thread", {"kind": "sync", "threads": 1}),
    Row("sync-16", "sync send, 16 threads", {"kind": "sync", "threads": 16}),
    Row("sync-64", "sync send, 64 threads", {"kind": "sync", "threads": 64}),
    Row("sync-64-json", "the same, JSON headers", {"kind": "sync", "threads": 64}, headers="JSON"),
    Row("sync-64-1k", "the same, 1 KiB", {"kind": "sync", "threads": 64, "size": 1024}),
    Row("async", "async send, 256 in flight", {"kind": "async", "inFlight": 256}),
    Row("batch", "batches of 32, 16 threads", {"kind": "batch", "threads": 16, "each": 32}),
)
CONSUME = Row("consume", "consume a backlog", {"kind": "consume"})
LATENCY = Row("latency", "send to listener at 1,000/s", {"kind": "latency", "rate": 1000})
FLUSHED = (
    Row("flush-1", "SYNC_FLUSH, 1 thread", {"kind": "sync", "threads": 1}, sync_flush=True),
    Row("flush-16", "SYNC_FLUSH, 16 threads", {"kind": "sync", "threads": 16}, sync_flush=True),
    Row("flush-64", "SYNC_FLUSH, 64 threads", {"kind": "sync", "threads": 64}, sync_flush=True),
    Row("flush-batch", "SYNC_FLUSH, batches of 32", {"kind": "batch", "threads": 16, "each": 32}, sync_flush=True),
)
ALL = (*SENDS, CONSUME, LATENCY, *FLUSHED)


class Bench:
    """The Java load in one JVM, towards the clusters that are under measurement."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.consumed: dict[str, str] = {}
        """A group that has consumed the backlog, by the name that was given to `prepare`."""

    def prepare(self, cluster: Cluster, name: str) -> None:
        """Topics and a producer for that cluster; `name` is used in `measure` again."""
        for topic in (TOPIC, BACKLOG):
            self._create(cluster, topic)
        self._judge.call("producer", name=name, group="BenchProducers", namesrv=cluster.address)

    def _create(self, cluster: Cluster, topic: str) -> None:
        line = ["updateTopic", "-n", cluster.address, "-b", cluster.broker.address, "-t", topic]
        done = self._judge.call("admin", line=[*line, "-r", str(QUEUES), "-w", str(QUEUES)])
        if "success" not in done["stdout"]:
            raise RuntimeError(f"{cluster.name}: the topic {topic} was not created: {done['stderr']}")

    def warm(self, name: str, ms: int) -> None:
        """Lets both JVMs compile what they will run."""
        self._judge.call("serialize", type="ROCKETMQ")
        for load in ({"kind": "sync", "threads": 16}, {"kind": "async"}, {"kind": "batch", "threads": 4}):
            self._judge.call("load", name=name, topic=TOPIC, ms=ms, within=600, **load)

    def fill(self, name: str, at_least: int) -> int:
        """Puts a backlog of at least so many messages; how many there are."""
        count = 0
        while count < at_least:
            done = self._judge.call(
                "load", kind="batch", name=name, topic=BACKLOG, threads=16, each=32, ms=500, within=600
            )
            count += done["messages"]
        return count

    def measure(self, row: Row, cluster: Cluster, name: str, ms: int, backlog: int) -> Measured:
        """One run in which nothing failed; raises RuntimeError when three in a row were not like that.

        A broker that is short of CPU for other reasons refuses sends ("broker busy"): such a run tells nothing.
        """
        for _ in range(3):
            found, failed = self._run(row, cluster, name, ms, backlog)
            if not failed:
                return found
        raise RuntimeError(f"{cluster.name}: {row.title}: {failed} messages failed; leave the machine more room")

    def _run(self, row: Row, cluster: Cluster, name: str, ms: int, backlog: int) -> tuple[Measured, int]:
        """One run, and how many messages failed."""
        self._judge.call("serialize", type=row.headers)
        request = {"name": name, "topic": TOPIC, "ms": ms, **row.load}
        if row is CONSUME:
            request |= {"name": f"{name}-{next(_runs)}", "topics": {BACKLOG: "*"}, "count": backlog, "consumeBatch": 32}
            request |= {"threads": 4}
            self.consumed[name] = f"bench-{next(_runs)}"
            request |= {"group": self.consumed[name], "namesrv": cluster.address}
        if row is LATENCY:
            # A topic of its own: a group that is new would begin at the first message of an old one.
            topic = f"Latency-{next(_runs)}"
            self._create(cluster, topic)
            request |= {"topic": topic, "topics": {topic: "*"}, "count": ms}
            request |= {"group": f"bench-{next(_runs)}", "namesrv": cluster.address}
        before = cluster.broker.process.cpu_seconds()
        done = self._judge.call("load", within=600, **request)
        used = cluster.broker.process.cpu_seconds() - before
        messages = max(1, done["messages"])
        return Measured(done["rate"], used * 1e6 / messages, done["p50Us"], done["p99Us"]), done["failed"]
