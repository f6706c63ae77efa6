"""Sending messages.

Owns a producer's settings and its seat in the session; ``sender`` carries each message to its end.
Facts: DefaultMQProducer in 4.9.7.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from asyncio import Future
from collections.abc import Collection, Sequence
from dataclasses import replace
from threading import get_ident

from eruca.client.admin_calls import Client
from eruca.client.bounds import bounded, within
from eruca.client.compression import LARGE, compressor
from eruca.client.config import ClientSettings, seconds_of
from eruca.client.environment import known_options
from eruca.client.errors import CallTimeout, StateError
from eruca.client.hooks import Hook, Hooks
from eruca.client.lifecycle import named, not_running
from eruca.client.log import log
from eruca.client.message import AFTER_ID, Message, ReceivedMessage, check_message, check_numbers, text_after_id
from eruca.client.network.identity import unique_keys
from eruca.client.network.requests import check_reply, error_reply, is_expired, reply_to
from eruca.client.network.session import Session
from eruca.client.outcomes import SendResult
from eruca.client.producing.batch import are_messages, check_batch, encode_messages, encode_ordinary, wait_of
from eruca.client.producing.options import DEFAULT_GROUP, ProducerOptions, taking
from eruca.client.producing.packer import pack
from eruca.client.producing.send import BATCH, ONEWAY, PLAIN, REPLY, Send, SendKind, choice_of_user, with_flags
from eruca.client.producing.send_hooks import Observer
from eruca.client.producing.sender import Sender
from eruca.client.producing.topic_queues import TopicQueues
from eruca.client.selectors import Selector
from eruca.client.trace import MessageTrace
from eruca.protocol.queues import MessageQueue
from eruca.remoting.loop import fork_count


@known_options
class Producer(Client):
    """Sends messages. Use it with ``async with``, or call ``start`` and ``stop``; it is started once.

    Args:
        group: names this kind of producer towards brokers and operators, who see who sends (``mqadmin
            producerConnection``). It decides nothing about messages, unless they are sent in transactions.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        send_timeout: seconds for a send, all attempts and waits together.
        retries: further attempts, on another broker where there is one, after a failure that may be of the broker's.
            Where all brokers of the topic (or the one of the chosen queue) are away, busy or without a master, or no
            nameserver answers where to send to, they are not counted: the send waits and is tried again until
            send_timeout is over. 0: one attempt, whatever happens.
        retry_backoff: seconds of the first such wait; each further one takes twice as long, up to ten times as long.
        retry_codes: answers of a broker after which another one is asked, beside RocketMQ's own (addRetryResponseCode).
        retry_when_not_stored: try again, too, when a send is answered with another status than SEND_OK.
        compress_from: bytes of a body from which on it travels compressed.
        max_message_size: bytes of the largest body.
        new_topic_queues: queues of a topic that the first send creates.
        max_in_flight: sends under way at once; those that are started beyond it wait here for their turn.
        max_in_flight_size: the same in bytes of their bodies.
        fault_tolerance: brokers that failed or answered late are passed over for a while (sendLatencyFaultEnable).
        hooks: what sees sends (see Hook).
        trace: True writes the trace of each message to RMQ_SYS_TRACE_TOPIC, a name to that topic (enableMsgTrace).
        on_disconnected: called with a Disconnected when a broker cannot be reached; a coroutine function, or another
            that runs in a thread. Nothing waits for it, it ends after 10 s (Waits.event_listener), errors are logged.
        on_reconnected: the same, with a Reconnected when it is reached again.
        on_error: the same, with a BackgroundError when background work failed, such as to store offsets.
        settings: what all clients share.

    Raises BadName and BadConfig; ``start`` also NoNameserver.
    """

    @taking(ProducerOptions)
    def __init__(self, options: ProducerOptions) -> None:
        self._configure(options)

    def _configure(self, options: ProducerOptions) -> None:
        self.group = group = options.group if options.group is not None else DEFAULT_GROUP
        self.send_timeout = options.send_timeout
        self.retries = options.retries
        self.compress_from = options.compress_from
        self.max_message_size = options.max_message_size
        self._options = options
        self._listeners = options.listeners()
        self._attempts = 1 + options.retries
        self._settings = ClientSettings.choose(options.settings, options.nameserver)
        settings, trace = self._settings, options.trace
        self._compress = compressor(options.compress_from, settings.compression, settings.compression_level)
        self._trace = MessageTrace(group, "PRODUCE", trace, settings, Producer) if trace else None
        self._hooks = Hooks.given(options.hooks, self._trace)
        self._observer: Observer | None = None
        """Of the hooks of sends; None where there are none."""
        self._session: Session | None = None
        self._stopped = False
        self._sender: Sender | None = None
        self._topics: dict[str, TopicQueues] = {}
        """Those of the sender."""

    # ------------------------------------------------------------------ starting and stopping

    def use(self, settings: ClientSettings) -> None:
        """Take other settings, with their nameservers, from the next start on. Raises StateError while it runs."""
        if self._session is not None:
            raise StateError("A producer takes other settings only before start().")
        self._configure(replace(self._options, nameserver=None, settings=settings))

    def _needs(self) -> tuple[ClientSettings, Collection[str]]:
        return self._settings, ()

    async def _join(self) -> None:
        """Take a seat in the session. Connections are made when they are needed."""
        if self._session is not None or self._stopped:
            state = "SHUTDOWN_ALREADY" if self._stopped else "RUNNING"
            raise StateError(
                f"The producer service state not OK, maybe started once, {state}. "
                f"Make a new {type(self).__name__} to start again."
            )
        session, options = Session.join(self._settings, listeners=self._listeners), self._options
        self._session = session
        self._sender = Sender(
            session,
            group=self.group,
            new_topic_queues=options.new_topic_queues,
            max_in_flight=options.max_in_flight,
            max_in_flight_size=options.max_in_flight_size,
            retry_codes=options.retry_codes,
            retry_when_not_stored=options.retry_when_not_stored,
            fault_tolerance=options.fault_tolerance,
            retry_backoff=options.retry_backoff if options.retries else None,
        )
        self._topics = self._sender.topics
        self._observe()
        await session.add_producer(self.group)
        if self._trace is not None:
            await self._trace.start()

    def add_hook(self, hook: Hook) -> None:
        """Add a hook that sees sends from now on, after the present ones. Raises UsageError."""
        self._hooks = Hooks((*self._hooks.all, hook))
        self._options = replace(self._options, hooks=(*self._options.hooks, hook))
        self._observe()

    def _observe(self) -> None:
        if self._session is not None and self._hooks.of_sends:
            self._observer = Observer(self._hooks, self._session, self.group, self.max_message_size)

    async def stop(self) -> None:
        """Wait for the sends under way (send_timeout at most), then leave. Calling it twice does no harm."""
        session, sender = self._session, self._sender
        if session is None or sender is None:
            return
        session.check_here()
        try:
            await sender.accumulator.wait_idle(self.send_timeout)
        finally:
            if self._session is session:  # no other call was quicker
                await self._leave(session)

    def __del__(self) -> None:
        sender = getattr(self, "_sender", None)  # none where the constructor raised
        if sender is not None and sender.forks == fork_count():
            warnings.warn(
                f"{named(self)} was not stopped, with {len(sender.accumulator)} sends under way: use `async with` "
                "(`with` in eruca.client.sync), or call stop().",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    async def _leave(self, session: Session) -> None:
        self._session = self._sender = None
        self._stopped = True
        self._topics = {}
        try:
            if self._trace is not None:
                await self._trace.stop()
            await session.remove_producer(self.group)
        finally:
            await session.leave(self._listeners)

    @property
    def _seat(self) -> Session:
        if self._session is None:
            raise not_running("producer", stopped=self._stopped)
        return self._session

    @property
    def session(self) -> Session:
        """The session in use. Raises StateError before start, after stop and elsewhere than its event loop."""
        session = self._session or self._seat
        # What check_here asks, without a call, as this is done for each send.
        if session.thread != get_ident() or not session.loop.is_running() or session.forks != fork_count():
            session.check_here()
        return session

    @property
    def in_flight(self) -> int:
        """Number of sends that have not ended, those included that wait for their turn."""
        return len(self._sender.accumulator) if self._sender is not None else 0

    # ------------------------------------------------------------------ sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        ordered_by: str | int | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until the broker has stored it.

        Args:
            queue: where exactly; no other queue is tried.
            selector: chooses the queue by the message and ``arg`` (see ``selectors``); no other one is tried.
            ordered_by: a key, such as an order id: messages with equal keys get the same queue, in their order. A
                shorthand of ``selector=by_hash, arg=key``, and so the queue that Java's selector by hash takes.
            timeout: seconds from when it is its turn; default send_timeout.

        Raises BadMessage and BadName (nothing was sent), BrokerRefused, SendFailed after all attempts, CallTimeout
        (the message may have been stored), TopicNotFound, NameserverUnreachable.
        """
        return await self._start(message, queue, selector, arg, timeout, ordered_by=ordered_by).future

    def start_send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        ordered_by: str | int | None = None,
        timeout: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send a message without waiting; arguments and errors as in ``send``.

        Many sends can be under way at once, and leave in few writes; beyond max_in_flight they wait here, and their
        time begins when it is their turn. Errors of use are raised here, the others by the future.
        """
        return self._start(message, queue, selector, arg, timeout, ordered_by=ordered_by).future

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        ordered_by: str | int | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; all are stored in one queue, or none.

        The result's ``message_ids`` has their ids. A selector is given the first message. See ``split_batch`` for more
        than fit. Arguments and errors as in ``send``.
        """
        return await self._start_batch(messages, queue, selector, arg, ordered_by, timeout).future

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        ordered_by: str | int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send a message once and ask for no answer: it may be lost. Raises as ``send``, as far as it gets.

        Waits only where the route is not known yet, and while the broker does not read what was sent before: for
        send_timeout at most.
        """
        if timeout is not None:
            async with within(timeout, "send_oneway"):
                return await self.send_oneway(message, queue=queue, selector=selector, arg=arg, ordered_by=ordered_by)
        send = self._start(message, queue, selector, arg, None, kind=ONEWAY, ordered_by=ordered_by)
        calls = send.hooks
        try:
            if not send.unattended:
                await send.future
                await self._running().wait_until_read(send, self.send_timeout)
        except BaseException as error:
            if calls is not None:
                calls.ended_oneway(error)
            raise
        if calls is not None:
            calls.ended_oneway(None)

    @bounded
    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until every send that was started before has ended, with a result or an error.

        The futures of ``start_send`` have both; nothing is raised here for them. Raises CallTimeout when ``timeout``
        seconds are over; by default each send ends by its own timeout.
        """
        futures = [send.future for send in self._running().under_way()]
        if futures:
            await asyncio.wait(futures)

    # ------------------------------------------------------------------ request-reply

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        ordered_by: str | int | None = None,
        timeout: float | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the answer that one of its consumers gives by ``reply``.

        Arguments as of ``send``; ``timeout`` counts for both. Raises as ``send``, CallTimeout when no answer came, and
        RemoteError when the answer is an error (``reply_error``).
        """
        session, seconds = self.session, seconds_of(timeout, self.send_timeout)
        deadline = session.loop.time() + seconds
        if not session.requests.known_everywhere:
            await session.meet_all()
            session.requests.known_everywhere = True
        correlation, answer, more = session.requests.open(session.client_id, seconds)
        try:
            left = max(deadline - session.loop.time(), 0.001)
            await self._start(message, queue, selector, arg, left, more=more, ordered_by=ordered_by).future
            async with asyncio.timeout_at(deadline):
                return check_reply(await answer)
        except TimeoutError as error:
            if isinstance(error, CallTimeout):
                raise
            raise CallTimeout(
                f"send request message to <{message.topic}> OK, but wait reply message timeout, "
                f"{round(seconds * 1000)} ms."
            ) from None
        finally:
            session.requests.close(correlation)

    async def reply(
        self, request: ReceivedMessage, body: bytes | Message, *, timeout: float | None = None
    ) -> SendResult | None:
        """Reply to a message that was sent by ``request``; returns when the requester has the reply.

        A Message brings properties, tags and keys, or a value by ``Message.of``; its topic is not looked at. A request
        whose time is over, by this clock and a second more, is not answered: the result is None.
        Raises BadMessage when the message is no request, and as ``send``.
        """
        message, more = reply_to(request, body)
        if is_expired(request):
            log.warning("the request %s of %s is not answered: its time is over", request.message_id, request.topic)
            return None
        return await self._start(message, None, None, None, timeout, more=more, kind=REPLY).future

    async def reply_error(
        self, request: ReceivedMessage, kind: str, text: str, *, timeout: float | None = None
    ) -> SendResult | None:
        """Reply that the request failed: ``request`` raises RemoteError with this type and text.

        Other clients get a reply whose body is the text, with the type as its property ``errorType``. Result and
        errors as of ``reply``.
        """
        return await self.reply(request, error_reply(kind, text), timeout=timeout)

    # ------------------------------------------------------------------ starting one send

    def _start(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
        timeout: float | None,
        more: str = "",
        kind: SendKind = PLAIN,
        ordered_by: str | int | None = None,
    ) -> Send:
        """Start a send, with ``more`` in its properties than a user may give. Raises the errors of use."""
        topic = self._topics.get(message.topic) if type(message) is Message else None
        if topic is None or type(message.body) is not bytes or not 0 < len(message.body) <= self.max_message_size:
            check_message(message, self.max_message_size)
            topic = self._running().topic(message.topic)
        body, text, large = message.body, AFTER_ID, False
        if (
            message.tags
            or message.keys
            or message.properties
            or message.delay_level
            or message.delay is not None
            or message.deliver_at is not None
            or not message.wait_store
        ):
            text = text_after_id(message)
        if more:
            text += more
        if message.flag or len(body) >= self.compress_from:
            check_numbers(message)
            large, bits = len(body) >= LARGE and not kind.oneway, 0
            if not large:
                body, bits = self._compress(body)
            kind = with_flags(kind, message.flag, bits)
        seconds = self.send_timeout if timeout is None else seconds_of(timeout, 0)
        choose = None
        if queue is not None or ordered_by is not None or selector is not None or arg is not None:
            choose = choice_of_user(message, queue, selector, arg, ordered_by)
        sender = self._sender
        if (
            sender is None
            or get_ident() != sender.thread
            or not sender.loop.is_running()
            or fork_count() != sender.forks
        ):
            sender = self._running()
        if self._observer is None:
            send = Send(sender, topic, Future(loop=sender.loop), body, text, seconds, kind, self._attempts)
        else:
            observed = self._observer.observe(message, None, more, kind, len(body))
            send = Send(sender, topic, observed, body, text, seconds, kind, self._attempts, hooks=observed)
        if choose is not None:
            send.choose, send.fixed, send.attempts = choose, True, 1
        elif kind is PLAIN:
            sender.accumulator.append(send)
            return send
        if large:
            pack(sender, send, self._compress)
        sender.append(send)
        return send

    def _start_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
        ordered_by: str | int | None,
        timeout: float | None,
    ) -> Send:
        """The same for messages in one request."""
        seconds = self.send_timeout if timeout is None else seconds_of(timeout, 0)
        sender, now, body = self._sender, time.time(), None
        if are_messages(messages) and messages[0].topic in self._topics:
            ids = unique_keys().stretches(now, len(messages))
            body = encode_ordinary(messages, ids, self.max_message_size)
        if body is None:
            check_batch(messages, self.max_message_size)
            ids = unique_keys().stretches(now, len(messages))
            body = encode_messages(messages, ids.ids(), self.max_message_size)
        first = messages[0]
        choose = choice_of_user(first, queue, selector, arg, ordered_by)
        if (
            sender is None
            or get_ident() != sender.thread
            or not sender.loop.is_running()
            or fork_count() != sender.forks
        ):
            sender = self._running()
        observed = None if self._observer is None else self._observer.observe(first, (*messages,), "", BATCH, len(body))
        topic, text, key = sender.topic(first.topic), wait_of(first), ids.joined()
        future: Future[SendResult] = observed or Future(loop=sender.loop)
        send = Send(sender, topic, future, body, text, seconds, BATCH, self._attempts, key, hooks=observed)
        if choose is not None:
            send.choose, send.fixed, send.attempts = choose, True, 1
        sender.append(send)
        return send

    def _running(self) -> Sender:
        """The sender in use. Raises StateError as ``session``."""
        sender = self._sender
        if self.session is None or sender is None:
            raise not_running("producer", stopped=self._stopped)
        return sender
