"""Figures of producers and consumers for Prometheus.

Owns the names of the figures, and that each exists once in a registry however many clients count into it. Needs
``pip install "eruca-client[prometheus]"``; without it only making a ``Prometheus`` fails. What is not known is NaN and
never 0, such as the lag of a queue whose broker is away.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eruca.client import sync
from eruca.client.backlog import QueueLag
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.push_consumer import PushConsumer, engine_of
from eruca.client.errors import BadConfig, UsageError
from eruca.client.hooks import ConsumeContext, EndTransactionContext, Hook, SendContext
from eruca.client.network.session import reconnects
from eruca.client.polling.lite_pull_consumer import LitePullConsumer, assignment_of
from eruca.client.polling.pull_consumer import PullConsumer
from eruca.client.polling.pull_schedule import PullScheduleService
from eruca.protocol.queues import MessageQueue

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

Consumer = PushConsumer | LitePullConsumer | PullScheduleService | PullConsumer
Watched = Consumer | sync.PushConsumer | sync.LitePullConsumer | sync.PullScheduleService | sync.PullConsumer
_KINDS = (PushConsumer, LitePullConsumer, PullScheduleService, PullConsumer)
_BLOCKING = (sync.PushConsumer, sync.LitePullConsumer, sync.PullScheduleService, sync.PullConsumer)
_OUTCOMES = ("consumed", "failed", "retried", "dead")
_known: weakref.WeakKeyDictionary[Any, _Figures] = weakref.WeakKeyDictionary()


class Prometheus(Hook):
    """Counts sends and consumption: give it to ``hooks=`` of producers and consumers.

    Those of one registry count into the same figures, distinguished by the labels group and topic.

    Args:
        registry: where the figures are; default: the global one, which ``start_http_server`` shows.

    Raises BadConfig when prometheus-client is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            install = 'run `pip install "eruca-client[prometheus]"`'
            raise BadConfig(f"prometheus-client is not installed: {install}.") from error
        chosen = prometheus_client.REGISTRY if registry is None else registry
        figures = _known.get(chosen)
        if figures is None:
            figures = _known[chosen] = _Figures(prometheus_client, chosen)
        self._figures = figures

    def watch(self, consumer: Watched) -> None:
        """Show the queues of this consumer, what it pulled, what waits in it, and what became of its messages.

        A consumer of any kind, blocking or not. Read at each scrape, so it costs nothing for a message. Raises
        UsageError for anything else.
        """
        found = consumer._client if isinstance(consumer, _BLOCKING) else consumer
        if not isinstance(found, _KINDS):
            raise UsageError(f"A {type(consumer).__name__} cannot be watched: a consumer is expected.")
        self._figures.consumers.add(found)

    def show_lag(self, group: str, rows: Iterable[QueueLag]) -> None:
        """Show the lag of a group, as ``lag`` found it; call it periodically."""
        for row in rows:
            labels = (group, row.queue.topic, row.queue.broker_name, str(row.queue.queue_id))
            difference, behind = row.difference, row.behind
            self._figures.lag.labels(*labels).set(math.nan if difference is None else difference)
            self._figures.behind.labels(*labels).set(math.nan if behind is None else behind)

    def after_send(self, context: SendContext) -> None:
        """Count the messages of a send."""
        figures, labels = self._figures, (context.producer_group, context.message.topic)
        result = "ONEWAY" if context.oneway else "ERROR"
        if context.result is not None:
            result = context.result.status.name
        elif context.error is not None:
            result = "ERROR"
        figures.sent.labels(*labels, result).inc(len(context.messages))
        if context.queue is not None:
            figures.sent_bytes.labels(*labels).inc(context.body_size)
        figures.send_seconds.labels(*labels).observe(time.perf_counter() - context.began)

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """Count a transaction."""
        labels = (context.producer_group, context.message.topic, context.state.name)
        self._figures.transactions.labels(*labels).inc()

    def before_consume(self, context: ConsumeContext) -> None:
        """Take the time."""
        context.notes[self] = time.perf_counter()

    def after_consume(self, context: ConsumeContext) -> None:
        """Count what a listener got."""
        labels = (context.consumer_group, context.messages[0].topic)
        self._figures.consumed.labels(*labels, context.return_type.name).inc(len(context.messages))
        for message in context.dead:
            self._figures.dead.labels(context.consumer_group, message.topic).inc()
        self._figures.consume_seconds.labels(*labels).observe(time.perf_counter() - context.notes[self])


class _Figures:
    """The figures of one registry."""

    def __init__(self, prometheus: Any, registry: Any) -> None:
        who = ("group", "topic")
        where = (*who, "broker", "queue")
        counter, gauge, histogram = prometheus.Counter, prometheus.Gauge, prometheus.Histogram

        def make(kind: Any, name: str, text: str, labels: tuple[str, ...]) -> Any:
            return kind(f"rocketmq_client_{name}", text, labels, registry=registry)

        self.sent = make(counter, "sent_messages", "Messages sent, by how the send ended", (*who, "result"))
        self.sent_bytes = make(counter, "sent_bytes", "Bytes of the bodies that were sent", who)
        self.send_seconds = make(histogram, "send_seconds", "Time from a send to its end, all attempts together", who)
        self.transactions = make(counter, "transactions", "Transactions, by what became of them", (*who, "state"))
        self.consumed = make(
            counter, "consumed_messages", "Messages that a listener got, by how it ended", (*who, "result")
        )
        self.dead = make(counter, "dead_letters", "Messages that a group gave up", who)
        self.consume_seconds = make(histogram, "consume_seconds", "Time of listeners", who)
        self.lag = make(gauge, "lag_messages", "Messages that a group has not consumed; NaN: unknown", where)
        self.behind = make(gauge, "lag_seconds", "How long the first of them has waited; NaN: unknown", where)
        self.consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """What consumers have at this moment (called by the registry, from any thread)."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        def gauge(name: str, text: str) -> Any:
            return GaugeMetricFamily(f"rocketmq_client_{name}", text, labels=("group", "topic"))

        def counter(name: str, text: str, *labels: str) -> Any:
            return CounterMetricFamily(f"rocketmq_client_{name}", text, labels=labels)

        assigned = gauge("assigned_queues", "Queues that a consumer has")
        messages = gauge("waiting_messages", "Messages that were pulled and are not yet consumed")
        size = gauge("waiting_bytes", "Their bytes")
        pulled = counter("pulled_messages", "Messages that were pulled", "group", "topic")
        handled = counter("handled_messages", "Messages by what became of them", "group", "topic", "outcome")
        sums = _Sums()
        for consumer in tuple(self.consumers):
            sums.add(consumer)
        for labels, count in sums.assigned.items():
            assigned.add_metric(labels, count)
        for labels, (count, total) in sums.waiting.items():
            messages.add_metric(labels, count)
            size.add_metric(labels, total)
        for labels, count in sums.pulled.items():
            pulled.add_metric(labels, count)
        for (group, topic, outcome), count in sums.handled.items():
            handled.add_metric((group, topic, outcome), count)
        again = counter("reconnects", "Connections that were opened once more", "broker")
        for address, count in tuple(reconnects.items()):
            again.add_metric((address,), count)
        yield from (assigned, messages, size, pulled, handled, again)


class _Sums:
    """The figures of consumers by group and topic; of retried messages the topic is that of the group's retries."""

    def __init__(self) -> None:
        self.assigned: Counter[tuple[str, str]] = Counter()
        self.waiting: dict[tuple[str, str], list[int]] = {}
        self.pulled: Counter[tuple[str, str]] = Counter()
        self.handled: Counter[tuple[str, str, str]] = Counter()

    def add(self, consumer: Consumer) -> None:
        """Those of one more consumer."""
        group = consumer.group
        queues: Iterable[MessageQueue]
        stats: ConsumerStats | None = None
        under_way: Mapping[MessageQueue, ProcessQueue] = {}
        if isinstance(consumer, LitePullConsumer):
            assignment = assignment_of(consumer)
            queues = consumer.assignment()
            if assignment is not None:
                stats = assignment.stats
                readers = dict(assignment.rebalance.readers)
                under_way = {queue: puller.process_queue for queue, puller in readers.items()}
        elif isinstance(consumer, PushConsumer):
            engine = engine_of(consumer)
            queues, stats, under_way = consumer.queues, engine.stats, engine.under_way
            for topic, each in tuple(stats.items()):
                for outcome in _OUTCOMES:
                    self.handled[group, topic, outcome] += getattr(each, outcome)
        else:
            queues = consumer.queues
        for queue in queues:
            self.assigned[group, queue.topic] += 1
        for queue, run in under_way.items():
            sum_of = self.waiting.setdefault((group, queue.topic), [0, 0])
            sum_of[0] += len(run)
            sum_of[1] += run.size
        for topic, each in tuple(stats.items()) if stats is not None else ():
            self.pulled[group, topic] += each.pulled
