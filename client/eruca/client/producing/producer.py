"""Sending messages.

Owns a producer's settings and its seat in the session; ``sends`` carries each message to its end.
Facts: DefaultMQProducer in 4.9.7.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from threading import get_ident

from eruca.client.admin_calls import AdminCalls
from eruca.client.bounds import within
from eruca.client.checks import check_least
from eruca.client.compression import COMPRESS_FROM, compressor
from eruca.client.config import ClientSettings, check_codes, check_group, check_positive, seconds_of
from eruca.client.errors import CallTimeout, StateError
from eruca.client.hooks import Hook, Hooks
from eruca.client.message import Message, ReceivedMessage, check_message
from eruca.client.network import identity
from eruca.client.network.requests import reply_to
from eruca.client.network.session import Session
from eruca.client.producing import hooked
from eruca.client.producing.batch import check_batch, encode_messages, wait_of
from eruca.client.producing.latency_faults import LatencyFaults
from eruca.client.producing.quick import QuickSends
from eruca.client.producing.sends import Choice, Send, SendEndpoint, SendResult, choice_of_user, write_oneway
from eruca.client.producing.window import MAX_IN_FLIGHT, MAX_IN_FLIGHT_SIZE, Window
from eruca.client.selectors import RoundRobin, Selector
from eruca.client.trace import MessageTrace
from eruca.protocol import api
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.names import DEFAULT_TOPIC
from eruca.protocol.queues import MessageQueue
from eruca.remoting.loop import fork_count

MAX_MESSAGE_SIZE = 4 * 1024 * 1024


class Producer(AdminCalls):
    """Sends messages. Use it with ``async with``, or call ``start`` and ``stop``.

    Args:
        group: names this kind of producer towards brokers and operators.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        send_timeout: seconds for a send, all attempts together.
        retries: further attempts, on another broker where there is one, after a failure that may be of the broker's.
        retry_codes: answers of a broker after which another one is asked, beside RocketMQ's own (addRetryResponseCode),
            such as 2, SYSTEM_BUSY, after which RocketMQ 5 does so.
        retry_when_not_stored: try again, too, when a send is answered with another status than SEND_OK.
        compress_from: bytes of a body from which on it travels compressed.
        max_message_size: bytes of the largest body.
        new_topic_queues: queues of a topic that the first send creates.
        max_in_flight: sends under way at once; those that are started beyond it wait here for their turn.
        max_in_flight_size: the same in bytes of their bodies.
        fault_tolerance: brokers that failed or answered late are passed over for a while (sendLatencyFaultEnable).
        hooks: what sees sends (see Hook).
        trace: True writes the trace of each message to RMQ_SYS_TRACE_TOPIC, a name to that topic (enableMsgTrace).
        settings: what all clients share.

    Raises BadName, BadConfig and NoNameserver.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        send_timeout: float = 3.0,
        retries: int = 2,
        retry_codes: Collection[int] = (),
        retry_when_not_stored: bool = False,
        compress_from: int = COMPRESS_FROM,
        max_message_size: int = MAX_MESSAGE_SIZE,
        new_topic_queues: int = 4,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_in_flight_size: int = MAX_IN_FLIGHT_SIZE,
        fault_tolerance: bool = False,
        hooks: Sequence[Hook] = (),
        trace: bool | str = False,
        settings: ClientSettings | None = None,
    ) -> None:
        check_group(group, "producer")
        check_positive(send_timeout=send_timeout, new_topic_queues=new_topic_queues, max_in_flight=max_in_flight)
        check_positive(
            compress_from=compress_from, max_message_size=max_message_size, max_in_flight_size=max_in_flight_size
        )
        check_least(0, retries=retries)
        check_codes(retry_codes=retry_codes)
        self.group = group
        self.window = Window(max_in_flight, max_in_flight_size)
        self.send_timeout = send_timeout
        self.retries = retries
        self.retry_codes = frozenset(retry_codes)
        self.retry_when_not_stored = retry_when_not_stored
        self.compress_from = compress_from
        self.max_message_size = max_message_size
        self.new_topic_queues = new_topic_queues
        self._settings = ClientSettings.choose(settings, nameserver)
        self._compress = compressor(compress_from, self._settings.compression, self._settings.compression_level)
        self._trace = MessageTrace(group, "PRODUCE", trace, self._settings) if trace else None
        self._hooks = Hooks.given(hooks, self._trace)
        self._watched = self._hooks.of_sends
        self._session: Session | None = None
        self._faults = LatencyFaults() if fault_tolerance else None
        self._turns: dict[str, RoundRobin] = {}
        self._quick: QuickSends | None = None

    # ------------------------------------------------------------------ starting and stopping

    async def start(self) -> None:
        """Take a seat in the session. Connections are made when they are needed."""
        if self._session is not None:
            raise StateError(
                "The producer service state not OK, maybe started once, RUNNING. Make a new Producer to start again."
            )
        self._session = Session.join(self._settings)
        self._choose_way()
        await self._session.add_producer(self.group)
        if self._trace is not None:
            await self._trace.start()

    def add_hook(self, hook: Hook) -> None:
        """One more that sees sends from now on, after those that are there. Raises UsageError."""
        self._hooks = Hooks((*self._hooks.all, hook))
        self._watched = self._hooks.of_sends
        self._choose_way()

    def _choose_way(self) -> None:
        if self._session is None or self._watched:
            self._quick = None
        else:
            self._quick = QuickSends(self, self._session, self._header, self._turns, self._faults, self._choice_in_turn)

    async def stop(self) -> None:
        """Wait for the sends under way (send_timeout at most), then leave. Calling it twice does no harm."""
        session = self._session
        if session is None:
            return
        try:
            await self.window.quiet(self.send_timeout)
        finally:
            if self._session is session:  # no other call was quicker
                await self._leave(session)

    async def _leave(self, session: Session) -> None:
        self._session = self._quick = None
        try:
            if self._trace is not None:
                await self._trace.stop()
            await session.remove_producer(self.group)
        finally:
            await session.leave()

    @property
    def session(self) -> Session:
        """The session in use. Raises StateError before start, after stop and elsewhere than its event loop."""
        session = self._session
        if session is None:
            raise StateError("The producer service state not OK: call start() or use `async with` first.")
        # What check_here asks, without a call, as this is done for each send.
        if session.thread != get_ident() or not session.loop.is_running() or session.forks != fork_count():
            session.check_here()
        return session

    # ------------------------------------------------------------------ sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until the broker has stored it.

        Args:
            queue: where exactly; then there is one attempt.
            selector: chooses the queue by the message and ``arg`` (see ``selectors``); then there is one attempt.
            timeout: seconds from when it is its turn; default send_timeout.

        Raises BadMessage and BadName (nothing was sent), BrokerRefused, SendFailed after all attempts, CallTimeout
        (the message may have been stored), TopicNotFound, NameserverUnreachable.
        """
        if self._quick is not None:
            future = self._quick.start(message, timeout, queue, selector, arg)
            if future is not None:
                return await future
        return await self._start_with(api.SEND_MESSAGE_V2, message, "", queue, selector, arg, timeout)

    def start_send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        timeout: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send a message without waiting; arguments and errors as in ``send``.

        Many sends can be under way at once, and leave in few writes; beyond max_in_flight they wait here, and their
        time begins when it is their turn. Errors of use are raised here, the others by the future.
        """
        if self._quick is not None:
            future = self._quick.start(message, timeout, queue, selector, arg)
            if future is not None:
                return future
        return self._start_with(api.SEND_MESSAGE_V2, message, "", queue, selector, arg, timeout)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send messages of one topic in one request; all are stored in one queue, or none.

        See ``split_batch`` for more than fit. Errors as in ``send``.
        """
        if self._quick is not None:
            future = self._quick.start_batch(messages, timeout, queue)
            if future is not None:
                return await future
        check_batch(messages, self.max_message_size)
        now = time.time()
        keys = identity.unique_keys().several(now, len(messages))
        body = encode_messages(messages, keys, self.max_message_size)
        first = messages[0]
        header = self._header(first.topic, wait_of(first), 0, 0, now)
        header.batch = True
        choose = self._choice(first, queue, None, None)
        watched = self._watch(messages, hooked.rewrite_batch(messages, keys, self.max_message_size))
        return await self._start(api.SEND_BATCH_MESSAGE, header, body, ",".join(keys), choose, queue, timeout, watched)

    def _watch(self, messages: Sequence[Message], rewrite: hooked.Rewrite) -> hooked.Watched | None:
        return hooked.Watched(self._hooks, list(messages), rewrite) if self._watched else None

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        timeout: float | None = None,
    ) -> None:
        """Send a message once and ask for no answer: it may be lost. Raises as ``send``, as far as it gets.

        Waits only where the route is not known yet, and while the broker does not read what was sent before: for
        send_timeout at most.
        """
        if timeout is not None:
            async with within(timeout, "send_oneway"):
                return await self.send_oneway(message, queue=queue, selector=selector, arg=arg)
        check_message(message, self.max_message_size)
        session = self.session
        body, bits = self._compress(message.body)
        now = time.time()
        key = identity.unique_keys().next(now)
        header = self._header(message.topic, message.properties_text(key), bits, message.flag, now)
        route = session.directory.routes.get(message.topic)
        if route is None or not route.to_send:
            route = await session.directory.route_to_send(message.topic, self.new_topic_queues)
        self._let_go(message.topic)
        chosen = self._choice(message, queue, selector, arg)(route, None)
        header.queue_id = chosen.queue_id
        address = await session.to_send(chosen.broker_name, message.topic)
        watched = self._watch([message], hooked.rewrite_one(message, key, ""))
        if watched is None:
            await write_oneway(session, address, header, body, self.send_timeout)
        else:
            await hooked.oneway_watched(watched, session, header, body, chosen, address, self.send_timeout)

    # ------------------------------------------------------------------ request-reply

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        timeout: float | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the answer that one of its consumers gives by ``reply``.

        Arguments as of ``send``; ``timeout`` counts for both. Raises as ``send``, and CallTimeout when no answer came.
        """
        session, seconds = self.session, seconds_of(timeout, self.send_timeout)
        deadline = session.loop.time() + seconds
        if not session.requests.known_everywhere:
            await session.meet_all()
            session.requests.known_everywhere = True
        correlation, answer, more = session.requests.open(session.client_id, seconds)
        try:
            left = max(deadline - session.loop.time(), 0.001)
            await self._start_with(api.SEND_MESSAGE_V2, message, more, queue, selector, arg, left)
            async with asyncio.timeout_at(deadline):
                return await answer
        except TimeoutError as error:
            if isinstance(error, CallTimeout):
                raise
            raise CallTimeout(
                f"send request message to <{message.topic}> OK, but wait reply message timeout, "
                f"{round(seconds * 1000)} ms."
            ) from None
        finally:
            session.requests.close(correlation)

    async def reply(self, question: ReceivedMessage, body: bytes, *, timeout: float | None = None) -> SendResult:
        """Answer a message that was sent by ``request``; returns when the client that asked has the answer.

        Raises BadMessage when the message asks nothing, and as ``send``.
        """
        message, more = reply_to(question, body)
        return await self._start_with(api.SEND_REPLY_MESSAGE_V2, message, more, None, None, None, timeout)

    def _start_with(
        self,
        endpoint: SendEndpoint,
        message: Message,
        more: str,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
        timeout: float | None,
        flags: int = 0,
    ) -> asyncio.Future[SendResult]:
        """Start a send that hooks may see, with ``more`` in its properties than a user may give."""
        check_message(message, self.max_message_size)
        now = time.time()
        key = identity.unique_keys().next(now)
        body, bits = self._compress(message.body)
        header = self._header(message.topic, message.properties_text(key) + more, bits | flags, message.flag, now)
        choose = self._choice(message, queue, selector, arg)
        watched = self._watch([message], hooked.rewrite_one(message, key, more))
        return self._start(endpoint, header, body, key, choose, queue or selector, timeout, watched)

    def _let_go(self, topic: str) -> None:
        """What was started before goes before the send that begins now."""
        if self._quick is not None:
            self._quick.leave_now(topic)

    def _header(self, topic: str, properties: str, sys_flag: int, flag: int, now: float) -> SendMessageV2:
        return SendMessageV2(
            producer_group=self.group,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=self.new_topic_queues,
            queue_id=0,
            sys_flag=sys_flag,
            born_timestamp=int(now * 1000),
            flag=flag,
            properties=properties,
            reconsume_times=0,
        )

    def _choice(self, message: Message, queue: MessageQueue | None, selector: Selector | None, arg: object) -> Choice:
        chosen = choice_of_user(message, queue, selector, arg)
        if chosen is not None:
            return chosen
        turn = self._turns.get(message.topic)
        if turn is None:
            turn = self._turns[message.topic] = RoundRobin()
        return self._choice_in_turn(turn)

    def _choice_in_turn(self, turn: RoundRobin) -> Choice:
        """One queue after the other; with a table of faults those of brokers that are not left out."""
        faults = self._faults
        if faults is None:
            return turn.choose_of
        now = self.session.loop.time
        return lambda route, avoid: faults.choose(route, turn, int(now() * 1000))

    def _start(
        self,
        endpoint: SendEndpoint,
        header: SendMessageV2,
        body: bytes,
        key: str,
        choose: Choice,
        fixed: object,
        timeout: float | None,
        watched: hooked.Watched | None = None,
    ) -> asyncio.Future[SendResult]:
        session = self.session
        future: asyncio.Future[SendResult] = session.loop.create_future()
        attempts = 1 if fixed is not None else 1 + self.retries
        seconds = seconds_of(timeout, self.send_timeout)
        faults = self._faults if fixed is None else None
        self._let_go(header.topic)
        start, size = session.loop.time(), len(body)
        what = (self, session, endpoint, header, body, key, choose, attempts, seconds, faults, future, start, size)
        if watched is None:
            self.window.enter(Send(*what))
        else:
            context = hooked.describe_send(watched, session, header, body)
            self.window.enter(hooked.WatchedSend(*what, watched=watched, context=context))
        return future
