"""Figures of producers and consumers for Prometheus.

Owns the names of the figures, and that each exists once in a registry however many clients count into it. Needs
``pip install "eruca[prometheus]"``; without it only making a ``Prometheus`` fails. What is not known, such as the lag
of a queue whose broker is away, is NaN and never 0.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from eruca.client import sync
from eruca.client.backlog import QueueLag
from eruca.client.consuming.push_consumer import PushConsumer, engine_of
from eruca.client.errors import BadConfig
from eruca.client.hooks import ConsumeContext, EndTransactionContext, Hook, SendContext

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

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
            raise BadConfig('prometheus-client is not installed: run `pip install "eruca[prometheus]"`.') from error
        chosen = prometheus_client.REGISTRY if registry is None else registry
        figures = _known.get(chosen)
        if figures is None:
            figures = _known[chosen] = _Figures(prometheus_client, chosen)
        self._figures = figures

    def watch(self, consumer: PushConsumer | sync.PushConsumer) -> None:
        """Show how many messages, and bytes, of each topic wait in this consumer for its listener."""
        self._figures.consumers.add(consumer if isinstance(consumer, PushConsumer) else consumer._client)

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
        self.consumers: weakref.WeakSet[PushConsumer] = weakref.WeakSet()
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """What waits in consumers at this moment (called by the registry, from any thread)."""
        from prometheus_client.core import GaugeMetricFamily

        messages = GaugeMetricFamily(
            "rocketmq_client_waiting_messages",
            "Messages that were pulled and are not yet consumed",
            labels=("group", "topic"),
        )
        size = GaugeMetricFamily("rocketmq_client_waiting_bytes", "Their bytes", labels=("group", "topic"))
        sums: dict[tuple[str, str], list[int]] = {}
        for consumer in tuple(self.consumers):
            for queue, run in engine_of(consumer).under_way.items():
                sum_of = sums.setdefault((consumer.group, queue.topic), [0, 0])
                sum_of[0] += len(run)
                sum_of[1] += run.size
        for labels, (count, total) in sums.items():
            messages.add_metric(labels, count)
            size.add_metric(labels, total)
        yield messages
        yield size
