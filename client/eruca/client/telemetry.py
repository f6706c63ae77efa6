"""OpenTelemetry: a span for each send, each consumption and each end of a transaction, and figures beside them.

Owns names and attributes, which are those of OpenTelemetry's conventions for messaging and for RocketMQ, and the
context that travels in the properties of messages (``traceparent`` of W3C by default), so that a consumer's span is a
child of the producer's, in whichever language either is. Needs ``pip install "eruca-client[opentelemetry]"``; without
it only making an ``OpenTelemetry`` fails. Facts: OpenTelemetry's semantic conventions, messaging spans and metrics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eruca.client.errors import BadConfig
from eruca.client.hooks import ConsumeContext, EndTransactionContext, Hook, MessageType, SendContext
from eruca.client.message import Message, ReceivedMessage, timer_of
from eruca.protocol import names
from eruca.protocol.record import host_text
from eruca.remoting.addresses import split_address
from eruca.remoting.version import version

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

NAME = "eruca.client"
SCHEMA = "https://opentelemetry.io/schemas/1.30.0"
"""The conventions whose names these are."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds that the conventions give for durations."""


class OpenTelemetry(Hook):
    """Give one to ``hooks=`` of producers and consumers; one for all of them is enough.

    Args:
        tracer_provider: who makes spans; default: the global one.
        meter_provider: who keeps figures; default: the global one.
        propagator: how a context is written into properties; default: the global one (W3C traceparent and baggage).

    Raises BadConfig when OpenTelemetry is not installed.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        try:
            from opentelemetry import context, metrics, propagate, trace
        except ImportError as error:
            install = 'run `pip install "eruca-client[opentelemetry]"`'
            raise BadConfig(f"OpenTelemetry is not installed: {install}.") from error
        self._context, self._trace = context, trace
        self._propagator: Any = propagate if propagator is None else propagator
        self._tracer = trace.get_tracer(NAME, version(), tracer_provider, SCHEMA)
        meter = metrics.get_meter(NAME, version(), meter_provider, SCHEMA)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that a listener got"
        )
        self._dead = meter.create_counter(
            "messaging.client.dead.messages", "{message}", "Messages that a group gave up, which became dead letters"
        )
        self._operation = _histogram(meter, "messaging.client.operation.duration", "Time of sends")
        self._process = _histogram(meter, "messaging.process.duration", "Time of listeners")

    def context_of(self, message: ReceivedMessage) -> Context:
        """The context that came with a message: for spans of your own where there is no listener."""
        found: Context = self._propagator.extract(message.properties)
        return found

    # ------------------------------------------------------------------ sending

    def before_send(self, context: SendContext) -> None:
        """A span begins, and its context travels with the messages."""
        span = context.notes[self] = self._begin(context)
        self._propagator.inject(context.properties, context=self._trace.set_span_in_context(span))

    def send_refused(self, context: SendContext) -> None:
        """The span of a send that a hook refused."""
        figures = _figures("send", context.message.topic, **_server(context.broker_address))
        self._end(self._begin(context), context.error, figures)
        self._operation.record(time.perf_counter() - context.began, {**figures, "messaging.operation.type": "send"})

    def _begin(self, context: SendContext) -> Span:
        """The span of a send, from when it was called."""
        topic = context.message.topic
        attributes: dict[str, Any] = {
            **_about(context.message, topic, len(context.messages)),
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.client.id": context.client_id,
            "messaging.message.body.size": context.body_size,
            "messaging.rocketmq.message.type": _kind(context.message_type),
            **_namespace(context.namespace),
            **_server(context.broker_address),
        }
        passed = time.perf_counter() - context.began
        return self._tracer.start_span(
            f"send {topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=attributes,
            start_time=time.time_ns() - int(passed * 1e9),
        )

    def after_send(self, context: SendContext) -> None:
        """The span ends."""
        span = context.notes[self]
        if context.queue is not None:
            span.set_attribute("messaging.destination.partition.id", str(context.queue.queue_id))
        if context.result is not None and len(context.messages) == 1:
            span.set_attribute("messaging.message.id", context.result.message_id)
        figures = _figures("send", context.message.topic, **_server(context.broker_address))
        self._end(span, context.error, figures)
        if context.queue is not None:
            self._sent.add(len(context.messages), figures)
        self._operation.record(time.perf_counter() - context.began, {**figures, "messaging.operation.type": "send"})

    def before_end_transaction(self, context: EndTransactionContext) -> None:
        """A span begins, for a broker's check as a part of the trace of the message that it checks."""
        message, topic = context.message, context.message.topic
        parent = self.context_of(message) if isinstance(message, ReceivedMessage) else None
        attributes: dict[str, Any] = {
            **_about(message, topic, 1),
            "messaging.operation.name": "end_transaction",
            "messaging.message.id": context.message_id,
            "messaging.rocketmq.message.type": "transaction",
            "messaging.rocketmq.transaction.state": context.state.name.lower(),
            "messaging.rocketmq.transaction.from_check": context.from_check,
            **_namespace(context.namespace),
            **_server(context.broker_address),
        }
        context.notes[self] = self._tracer.start_span(
            f"end_transaction {topic}", context=parent, kind=self._trace.SpanKind.CLIENT, attributes=attributes
        )

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """The span ends."""
        self._end(context.notes[self], context.error, {})

    # ------------------------------------------------------------------ consuming

    def before_consume(self, context: ConsumeContext) -> None:
        """A span begins: a child of the producer's for one message, linked with each producer's for several.

        It is the current one while a listener runs.
        """
        messages, topic = context.messages, context.messages[0].topic
        origins = [self.context_of(message) for message in messages]
        links = [
            self._trace.Link(found)
            for each in origins
            if (found := self._trace.get_current_span(each).get_span_context()).is_valid
        ]
        attributes: dict[str, Any] = {
            **_about(messages[0], topic, len(messages)),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.client.id": context.client_id,
            "messaging.consumer.group.name": context.consumer_group,
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "messaging.rocketmq.consumption_model": "broadcasting" if context.broadcast else "clustering",
            **_namespace(messages[0].properties.get(names.INSTANCE_ID)),
            **_server(host_text(messages[0].record.store_host)),
        }
        if len(messages) == 1:
            attributes["messaging.rocketmq.message.delivery_attempt"] = messages[0].reconsume_times + 1
            attributes["messaging.message.id"] = messages[0].message_id
            attributes["messaging.message.body.size"] = len(messages[0].record.body)
        # The current context, such as that of the code that started the consumer, is not used here.
        parent = origins[0] if len(messages) == 1 else self._context.Context()
        span = self._tracer.start_span(
            f"process {topic}",
            context=parent,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        token = None
        if context.in_listener:
            token = self._context.attach(self._trace.set_span_in_context(span, parent))
        context.notes[self] = span, time.perf_counter(), token

    def after_consume(self, context: ConsumeContext) -> None:
        """The span ends."""
        span, began, token = context.notes[self]
        if token is not None:
            self._context.detach(token)
        span.set_attribute("messaging.rocketmq.consume.status", context.status)
        if context.dead:
            span.set_attribute("messaging.rocketmq.dead_letters", len(context.dead))
        figures = _figures(
            "process", context.messages[0].topic, **{"messaging.consumer.group.name": context.consumer_group}
        )
        if context.error is None and not context.success:
            figures["error.type"] = context.status
            span.set_attribute("error.type", context.status)
            span.set_status(self._trace.StatusCode.ERROR, context.status)
        self._end(span, context.error, figures)
        self._consumed.add(len(context.messages), figures)
        self._process.record(time.perf_counter() - began, figures)
        if context.dead:
            self._dead.add(len(context.dead), figures)

    def _end(self, span: Span, error: BaseException | None, figures: dict[str, Any]) -> None:
        if error is not None:
            kind = type(error).__qualname__
            figures["error.type"] = kind
            span.set_attribute("error.type", kind)
            span.record_exception(error)
            span.set_status(self._trace.StatusCode.ERROR, str(error))
        span.end()


def _histogram(meter: Any, name: str, description: str) -> Any:
    try:
        return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=SECONDS)
    except TypeError:  # an older version, in which only views set bounds
        return meter.create_histogram(name, "s", description)


def _about(message: Message | ReceivedMessage, topic: str, count: int) -> Mapping[str, Any]:
    """The attributes of every span of messages; tags and keys only if there is a single one."""
    attributes: dict[str, Any] = {"messaging.system": "rocketmq", "messaging.destination.name": topic}
    if count > 1:
        attributes["messaging.batch.message_count"] = count
        return attributes
    keys = message.keys.split() if isinstance(message.keys, str) else message.keys
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if keys:
        attributes["messaging.rocketmq.message.keys"] = list(keys)
    if isinstance(message, Message) and message.delay_level:
        attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if isinstance(message, Message) and (timer := timer_of(message)) is not None:
        name, value = timer
        since = 0 if name == names.TIMER_DELIVER_MS else time.time_ns() // 1_000_000
        attributes["messaging.rocketmq.message.delivery_timestamp"] = since + int(value)
    return attributes


def _figures(operation: str, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
        **more,
    }


def _namespace(namespace: str | None) -> dict[str, Any]:
    return {"messaging.rocketmq.namespace": namespace} if namespace else {}


def _server(address: str | None) -> dict[str, Any]:
    if address is None:
        return {}
    host, port = split_address(address)
    return {"server.address": host, "server.port": port}


def _kind(kind: MessageType) -> str:
    if kind is MessageType.DELAY:
        return "delay"
    return "normal" if kind is MessageType.NORMAL else "transaction"
