"""``spark.readStream.format("rocketmq")``: micro-batches from one offset to the next.

Owns what a running query remembers between triggers. The checkpoint of Spark alone is the truth. The planning methods
run in one process that lives as long as the query, ``read`` runs in the tasks.

Spark calls ``initialOffset`` twice, and again after a crash in the first batch: so it names no queue, and the end of
the first batch carries the start. It passes the end of the last finished batch to ``latestOffset``, also when idle: so
the offsets of the group are committed there, since ``commit`` comes a batch late and not for the last batch. ``stop``
may never come. An idle query calls every 10 ms, so answers are cached for latestOffsetCacheMs.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from eruca.client import MessageQueue, PullConsumer
from eruca.remoting.clock import now_ms
from eruca.spark_connector.errors import GroupReset, SourceError
from eruca.spark_connector.offsets import group_offsets, lives, sizes
from eruca.spark_connector.offsets.discovery import chooses
from eruca.spark_connector.offsets.end_offsets import EndOffsets, end_offsets, reachable_end_offsets
from eruca.spark_connector.offsets.positions import (
    INITIAL,
    Marks,
    Positions,
    StreamOffset,
    first_end,
    next_end,
    write_positions,
)
from eruca.spark_connector.offsets.resolution import starts
from eruca.spark_connector.options import Options
from eruca.spark_connector.read.description import describe
from eruca.spark_connector.read.partitions import OffsetPartition, plan_partitions
from eruca.spark_connector.read.preparation import prepare
from eruca.spark_connector.runtime import clients
from eruca.spark_connector.runtime.boundary import boundary
from eruca.spark_connector.runtime.retry import ask_each, lost

log = logging.getLogger("eruca.spark")
LOOK_AGAIN_SECONDS = 0.5
"""Between two looks whether a broker is back for which a query with ``availableNow`` waits."""
REPORTS_KEPT = 100
"""Reports of the group's offsets. They distinguish a broker that lost the newest ones from a reset of the group."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches; ``parallelism`` is how many tasks can run at once.

    ``monotonic`` says, in seconds, when queues are compared with those that were read.
    """

    def __init__(
        self,
        options: Options,
        schema: StructType,
        parallelism: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._checked = False
        self._first: Positions | None = None
        self._latest = EndOffsets({})
        self._latest_at: float | None = None
        self._read: Positions = {}
        self._away: dict[str, float] = {}
        self._unseen = False
        self._target: EndOffsets | None = None
        self._lives = lives.Lives(monotonic)
        self._planned = False
        self._told: set[str] = set()
        self._reports: deque[Positions] = deque(maxlen=REPORTS_KEPT)
        self._confirmed: Positions = {}
        self._reported_at = -math.inf
        self._announced: set[str] = set()
        self._last_batch_at: float | None = None

    # ------------------------------------------------------------------ what Spark asks

    def initialOffset(self) -> dict[str, Any]:
        """The offset of a query that has not begun."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:
        """By maxOffsetsPerTrigger, else minOffsetsPerTrigger, else maxBytesPerTrigger, which counts beside them."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @boundary
    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the end of the query, as far as brokers answer: for the others it waits when these are read."""
        cluster, options = clients.this_process(), self._options
        try:
            self._target = cluster.call(
                options.access, lambda consumer: reachable_end_offsets(consumer, options, (), {})
            )
        except SourceError as error:  # whether that ends the query depends on what it has read, which is not known yet
            self._target = EndOffsets({}, unseen=error)

    @boundary
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself where there is nothing to do. Raises SourceError."""
        since = StreamOffset.from_json(start)
        cluster = clients.this_process()
        self._planned = True
        if since is None:
            end = cluster.call(self._options.access, lambda consumer: self._plan_first(consumer, limit))
        else:
            self._read = since.queues
            latest = self._target if self._target is not None else self._look()
            began = cluster.call(self._options.access, lambda consumer: self._find_began(consumer, since, latest))
            self._report({**began, **since.queues})
            following = next_end(since, began, latest.offsets, _most(limit))
            if following is None and self._sees_more(since):
                return self.latestOffset(start, limit)
            if following is None or self._waits_for_more(following, since, limit):
                return start
            most = self._most_bytes(limit)
            if most is not None:
                starts, ends = {**since.queues, **began}, following.queues
                fit = partial(
                    sizes.fit_into, starts=starts, ends=ends, most=most, within=self._options.broker_loss_timeout
                )
                ends = cluster.call(self._options.access, fit)
                following = next_end(since, began, ends)
                assert following is not None, "a message was left"
            end = following
        end = cluster.call(self._options.access, partial(self._lives.mark, since=since, end=end))
        self._last_batch_at = time.monotonic()
        return end.to_json()

    @boundary
    def reportLatestOffset(self) -> dict[str, Any]:
        """Where the queues end, for the progress of the query; Spark asks right after ``latestOffset``.

        Of a query with ``availableNow`` its own end: a broker that is away keeps no batch of the others waiting.
        """
        looked = self._target if self._target is not None else self._latest if self._latest_at is not None else None
        return {"queues": write_positions((self._look() if looked is None else looked).offsets)}

    @boundary
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetPartition]:
        """The plan of a batch, by its two offsets alone."""
        stop = StreamOffset.from_json(end)
        if stop is None or start == end:
            return []
        since = StreamOffset.from_json(start)
        ranges = stop.since(since)
        if not self._planned:  # by this process: a batch that an earlier one has not finished
            known = since.marks if since is not None else {}
            marks = {**stop.marks, **{queue: mark for queue, mark in known.items() if queue not in stop.began}}
            to_read = {each.queue for each in ranges}
            other = clients.this_process().call(
                self._options.access, lambda consumer: self._replaced(consumer, marks, stop.queues, to_read)
            )
            ranges = [each for each in ranges if each.queue not in other]
        planned = plan_partitions(ranges, self._options, self._parallelism)
        log.info("rocketmq %s", describe(planned))
        return planned

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        from eruca.spark_connector.read.partition_reader import read_partition  # what plans needs nothing of it

        with boundary:
            yield from read_partition(self._options, self._schema, partition)

    # ------------------------------------------------------------------ planning

    async def _plan_first(self, consumer: PullConsumer, limit: ReadLimit) -> StreamOffset:
        """The end of a query's first batch, which may be empty: it brings the start into the checkpoint."""
        target = self._target
        if target is None or target.away or target.unseen is not None:
            target = await end_offsets(consumer, self._options)
        if self._target is not None:
            self._target = target
        latest = target.offsets
        if self._first is None:
            await prepare(consumer, self._options, latest)
            self._checked = True
            self._first = await starts(consumer, self._options, latest, now_ms())
        first, most = first_end(self._first, latest, _most(limit)), self._most_bytes(limit)
        if most is None:
            return first
        within = self._options.broker_loss_timeout
        return StreamOffset(await sizes.fit_into(consumer, self._first, first.queues, most, within), first.began)

    async def _find_began(self, consumer: PullConsumer, since: StreamOffset, latest: EndOffsets) -> Positions:
        """Where the queues begin that are new, or that were created again since the last batch.

        A slave that is behind what was read already says nothing of that: its queues stay where they are. What was
        found with the ends is not asked for again; the ends of ``availableNow`` come without it.
        """
        if not self._checked and latest.offsets:
            await prepare(consumer, self._options, latest.offsets)
            self._checked = True
        behind = {queue: end for queue, end in latest.offsets.items() if end < since.queues.get(queue, 0)}
        lost = [queue for queue in behind if queue not in latest.by_slave]
        for queue in lost:
            self._tell_loss(
                f"The query has read {queue} up to {since.queues[queue]}, but now it ends at {behind[queue]}: "
                "the topic was deleted (and perhaps created again), or its broker lost data."
            )
        other = await self._replaced(consumer, since.marks, since.queues, latest.offsets.keys() - behind.keys())
        fresh = [queue for queue in latest.offsets if queue not in since.queues]
        again = [*lost, *other]
        known = {queue: latest.began[queue] for queue in (*fresh, *lost) if queue in latest.began}
        known = {queue: begin for queue, begin in known.items() if queue not in since.marks}
        unknown = [queue for queue in (*fresh, *again) if queue not in known]
        return {**known, **await ask_each(consumer, unknown, partial(lives.begin_after, consumer, since.marks))}

    async def _replaced(
        self, consumer: PullConsumer, marks: Marks, read: Positions, queues: Collection[MessageQueue]
    ) -> list[MessageQueue]:
        """The queues that are not those any more which the query has read; failOnDataLoss decides."""
        found = await self._lives.replaced(consumer, marks, queues)
        for queue, there in sorted(found.items()):
            self._tell_loss(lives.sentence(queue, read[queue], marks[queue], there))
        return sorted(found)

    def _tell_loss(self, sentence: str) -> None:
        """Raise SourceError, or with failOnDataLoss=false log it once."""
        if self._options.fail_on_data_loss:
            raise SourceError(
                f"{sentence} Set failOnDataLoss=false to go on with what was stored since, or use another "
                "checkpointLocation."
            )
        if sentence not in self._told:
            self._told.add(sentence)
            log.warning("%s The query goes on with what was stored since.", sentence)

    def _look(self) -> EndOffsets:
        """Where the queues end, asked for at most once in latestOffsetCacheMs."""
        now = time.monotonic()
        if self._latest_at is not None and (now - self._latest_at) * 1000 < self._options.latest_offset_cache_ms:
            return self._latest
        return self._look_now()

    def _look_now(self) -> EndOffsets:
        options = self._options
        known = {*self._latest.offsets, *(queue for queue in self._read if chooses(options, queue))}
        found = clients.this_process().call(
            options.access, lambda consumer: reachable_end_offsets(consumer, options, known, self._read)
        )
        self._latest_at = time.monotonic()
        self._notice_lost(found)
        self._lives.looked(found.gone)
        if found.offsets:
            self._latest = found
        return found

    def _notice_lost(self, found: EndOffsets) -> None:
        """Log which brokers are away and back. Raises SourceError for one that is away too long."""
        if found.unseen is not None and not self._unseen:
            log.warning("no new queues are looked for: %s", found.unseen)
        self._unseen = found.unseen is not None
        now, most = time.monotonic(), self._options.broker_loss_timeout
        assert most is not None
        for broker in [each for each in self._away if each not in found.away]:
            log.warning("%s answers again after %.0f s", broker, now - self._away.pop(broker))
        for broker, error in found.away.items():
            if broker not in self._away:
                self._away[broker] = now
                log.warning("the queues of %s stay where they are, for %g s at most: %s", broker, most, error)
            if now - self._away[broker] >= most and self._options.fail_on_data_loss:
                raise lost(broker, most, error)

    def _sees_more(self, since: StreamOffset) -> bool:
        """Wait for the brokers that a query with ``availableNow`` has not seen, and whether one of them is back.

        With failOnDataLoss=false the query ends without those that are away too long.
        """
        target, options = self._target, self._options
        if target is None:
            return False
        chosen = {queue for queue in since.queues if chooses(options, queue)}
        waiting = {*target.away, *(queue.broker_name for queue in chosen - target.offsets.keys())}
        most = options.broker_loss_timeout
        assert most is not None
        while waiting:
            found = self._look_now()
            back = waiting - found.away.keys()
            if back:
                self._target = target.joined(found, back)
                return True
            if all(time.monotonic() - self._away[broker] >= most for broker in waiting):
                log.warning("the query ends without what %s may have", ", ".join(sorted(waiting)))
                return False
            time.sleep(LOOK_AGAIN_SECONDS)
        return False

    def _most_bytes(self, limit: ReadLimit) -> int | None:
        return None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes_per_trigger

    def _waits_for_more(self, end: StreamOffset, since: StreamOffset, limit: ReadLimit) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if sum(len(each) for each in end.since(since)) >= least:
            return False
        if self._last_batch_at is None:
            self._last_batch_at = time.monotonic()
        return (time.monotonic() - self._last_batch_at) * 1000 < self._options.max_trigger_delay

    def _report(self, done: Positions) -> None:
        """Commit how far the group is, for tools to see. A failure does not touch the query.

        Raises SourceError where the group was moved and onGroupReset is "fail".
        """
        group = self._options.commit_group
        now = time.monotonic()
        if group is None or (
            self._target is None and (now - self._reported_at) * 1000 < self._options.commit_interval_ms
        ):
            return
        moved = {queue: offset for queue, offset in done.items() if self._confirmed.get(queue) != offset}
        cluster, access = clients.this_process(), self._options.access
        self._reported_at = now
        try:
            if self._options.on_group_reset == "fail" and self._confirmed:
                known = self._confirmed
                self._check_reset(
                    group, cluster.call(access, lambda consumer: group_offsets.fetch(consumer, group, known))
                )
            if moved:
                self._announce(cluster, group, moved)
                self._reports.append(dict(done))
                cluster.call(access, lambda consumer: group_offsets.commit(consumer, group, moved))
                self._confirmed = dict(done)
        except GroupReset:
            raise
        except SourceError as error:
            log.warning("the offsets of group %s could not be reported: %s", group, error)

    def _announce(self, cluster: clients.ClusterClients, group: str, queues: Positions) -> None:
        brokers = {queue.broker_name for queue in queues}
        if brokers <= self._announced:
            return
        self._announced |= brokers
        try:
            cluster.call(self._options.access, lambda consumer: group_offsets.announce(consumer, group, queues))
        except SourceError as error:
            log.warning("mqadmin consumerProgress will not find group %s: %s", group, error)

    def _check_reset(self, group: str, found: Mapping[MessageQueue, int | None]) -> None:
        # A broker that died may have forgotten the newest reports; an older one of them is no reset.
        for queue, offset in sorted(found.items()):
            if offset is not None and all(report.get(queue) != offset for report in self._reports):
                raise GroupReset(
                    f"The group {group} was set from {self._confirmed[queue]} to {offset} in {queue} while the query "
                    "ran. To read from there, start it with a new checkpointLocation and startingOffsets=group; "
                    "onGroupReset=ignore goes on and reports its own offsets again."
                )


def _most(limit: ReadLimit) -> int | None:
    return limit.max_rows if isinstance(limit, ReadMaxRows) else None
