"""RPC: functions that other programs call by name, by the messages of request and reply.

Owns what a call is on the wire, and the table of functions. A call is a question to a topic: its tag is the name of the
method, its body the arguments as JSON: an array by position, an object by name, of both an object whose key "" has the
array. The answer's body is the result as JSON. An error is an answer with the property ``errorType``, as of
``Producer.reply_error``; a traceback stays here. Invariants: what fails is answered, also the sending of a result, and
never retried; a call whose asker has stopped waiting is not begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import traceback
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast, overload

import msgspec

from eruca.client import callbacks
from eruca.client.checks import check_kind, check_seconds, check_wait
from eruca.client.config import ClientSettings, check_topic
from eruca.client.consuming.last_error import text_of
from eruca.client.consuming.push_consumer import PushConsumer
from eruca.client.environment import known_options
from eruca.client.errors import BadAnswer, ClientError, StateError, UsageError
from eruca.client.lifecycle import Startable, not_running
from eruca.client.log import log
from eruca.client.message import Message, ReceivedMessage
from eruca.client.network.requests import is_expired, is_request
from eruca.client.producing.producer import Producer
from eruca.client.serializers import Json

UNKNOWN_METHOD = "UnknownMethod"
"""The type of the error for a method that nobody has registered."""
BAD_ARGUMENTS = "BadArguments"
"""The type of the error for arguments that do not fit the function."""
LONGEST_TEXT = 4000
"""Characters of the text of an error that travel and are logged."""
_JSON = Json()
_BY_POSITION = ""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")
Service = Callable[..., T]
"""A class: type checkers take none with abstract methods, nor a Protocol, for a ``type[T]``."""


class _Misfit(Exception):
    """Arguments that do not fit."""


class _Method(NamedTuple):
    """A function and the types that its annotations give."""

    function: Callable[..., Any]
    signature: inspect.Signature
    types: Mapping[str, Any]

    def bound(self, body: bytes) -> Callable[[], Any]:
        """The function with the arguments of a call. Raises _Misfit."""
        try:
            given = msgspec.json.decode(body)
            positional, named = (given, {}) if isinstance(given, list) else (given.pop(_BY_POSITION, []), given)
            found = self.signature.bind(*positional, **named)
            for name, value in found.arguments.items():
                found.arguments[name] = self._converted(name, value)
        except (TypeError, AttributeError, msgspec.MsgspecError) as error:
            raise _Misfit(str(error)) from None
        return partial(self.function, *found.args, **found.kwargs)

    def _converted(self, name: str, value: Any) -> Any:
        kind = self.types.get(name, Any)
        match self.signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                return tuple(_convert(name, each, kind) for each in value)
            case inspect.Parameter.VAR_KEYWORD:
                return {key: _convert(key, each, kind) for key, each in value.items()}
        return _convert(name, value, kind)


def _convert(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _Misfit(f"{name}: {error}") from None


def _method(function: Callable[..., Any]) -> _Method:
    """Raises UsageError where its annotations name nothing."""
    try:
        return _Method(function, inspect.signature(function), typing.get_type_hints(function))
    except NameError as error:
        raise UsageError(f"The annotations of {function!r} cannot be read: {error}.") from None


class Proxy(typing.Generic[R]):
    """The methods of a service, as methods: ``await proxy.price("salad", amount=2)``."""

    def __init__(
        self,
        call: Callable[[str, Sequence[Any], Mapping[str, Any], Any], R],
        service: str,
        methods: Mapping[str, _Method] | None,
    ) -> None:
        self._call = call
        self._service = service
        self._methods = methods

    def __getattr__(self, name: str) -> Callable[..., R]:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._methods is None:
            return lambda *args, **named: self._call(name, args, named, Any)
        if name not in self._methods:
            raise AttributeError(f"{self._service} has no method {name}")
        method = self._methods[name]

        def call(*args: Any, **named: Any) -> R:
            try:
                method.signature.bind(None, *args, **named)
            except TypeError as error:
                raise UsageError(f"{self._service}.{name}: {error}.") from None
            return self._call(name, args, named, method.types.get("return", Any))

        return call

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._service}>"


def methods_of(service: object) -> dict[str, _Method]:
    """The public functions of a class, such as a Protocol. Raises UsageError."""
    if not inspect.isclass(service):
        raise UsageError(f"The service is of type {type(service).__name__}: a class, such as a Protocol, is expected.")
    members = inspect.getmembers(service, inspect.isfunction)
    return {name: _method(function) for name, function in members if not name.startswith("_")}


@known_options
class RPC(Startable):
    """Functions that other programs call by name, and calls of theirs. Use it with ``async with``, or call ``start``.

    Register functions by ``method``: then it is a member of the group, and each call goes to one member. Call by
    ``call`` or ``proxy``; who only calls needs no function.

    Args:
        topic: where the questions go; programs that call each other have the same.
        group: the group that answers, or the name of the program that asks.
        nameserver: ``host:port`` addresses; default from the environment (see ClientSettings).
        timeout: seconds for a call until its answer is there.
        concurrency: functions of this program at work at once.
        settings: what all clients share.

    Raises BadName, BadConfig and NoNameserver.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        timeout: float = 3.0,
        concurrency: int = 20,
        settings: ClientSettings | None = None,
    ) -> None:
        check_topic(topic)
        check_seconds(0.001, timeout=timeout)
        settings = ClientSettings.choose(settings, nameserver)
        self.topic = topic
        self.group = group
        self._timeout = timeout
        self._settings = settings
        self._producer = Producer(group, settings=settings)
        self._consumer = PushConsumer(group, self._answer, concurrency=concurrency, settings=settings)
        self._consumer.subscribe(topic)
        self._methods: dict[str, _Method] = {}
        self._running = False
        self._stopped = False

    # ------------------------------------------------------------------ functions

    @overload
    def method(self, function: F) -> F: ...
    @overload
    def method(self, function: None = None, *, name: str | None = None) -> Callable[[F], F]: ...
    def method(self, function: Any = None, *, name: str | None = None) -> Any:
        """Register a function, as ``@rpc.method`` or ``@rpc.method(name="price.of")``; it stays as it is.

        A coroutine function runs in the event loop, another function in a thread. Arguments are converted to the types
        of its annotations: plain values, dataclasses and msgspec structs. The result is sent as JSON. What it raises
        reaches the asker as RemoteError, with type and text. Raises UsageError, and StateError once it has started.
        """
        if function is None:
            return partial(self._register, name)
        return self._register(name, function)

    def _register(self, name: str | None, function: F) -> F:
        callbacks.check_callable(function, "The method")
        callbacks.check_no_generator(function, "The method")
        name = name or getattr(function, "__name__", "")
        if self._running or self._stopped:
            raise StateError("The RPC was started: register methods before it starts.")
        if not name or not name.isprintable() or {" ", "|"} & set(name):
            raise UsageError(f"The method name {name!r} cannot be used: give a name= without blanks and |.")
        if name in self._methods:
            raise UsageError(f"The method {name} is registered already: give the second one another name=.")
        self._methods[name] = _method(function)
        return function

    async def _answer(self, question: ReceivedMessage) -> None:
        """Carry out one call. Never raises: a call is not retried."""
        if not is_request(question):
            log.warning("a message of %s is no call: %s was not sent by request()", self.topic, question.message_id)
            return
        name = question.tags or ""
        if is_expired(question):
            log.warning("a call of %s of %s is left out: its time is over", name, self.topic)
            return
        try:
            answer: Message | tuple[str, str] = await self._result(name, question)
        except Exception as error:
            answer = type(error).__name__, self._logged(name, error)
        try:
            failed = await self._sent(name, question, answer) if isinstance(answer, Message) else answer
            if failed is not None:
                await self._producer.reply_error(question, *failed)
        except ClientError as error:
            log.warning("the answer of %s of %s did not reach who asked: %s", name, self.topic, error)

    def _logged(self, name: str, error: Exception) -> str:
        """The text of what a method raised, which is logged here, and cut if it is very long."""
        text = text_of(error)
        if len(text) <= LONGEST_TEXT:
            log.warning("the method %s of %s failed", name, self.topic, exc_info=error)
            return text
        text = f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"
        frames = "".join(traceback.format_tb(error.__traceback__))
        log.warning("the method %s of %s failed: %s: %s\n%s", name, self.topic, type(error).__name__, text, frames)
        return text

    async def _sent(self, name: str, question: ReceivedMessage, answer: Message) -> tuple[str, str] | None:
        """Reply; the error to answer with if no try will send this, such as of a body that is too large."""
        try:
            await self._producer.reply(question, answer)
        except ClientError as error:
            if error.retriable:
                raise
            log.warning("the result of %s of %s cannot be sent: %s", name, self.topic, error)
            return type(error).__name__, f"the result of {name} cannot be sent: {error}"
        return None

    async def _result(self, name: str, question: ReceivedMessage) -> Message | tuple[str, str]:
        method = self._methods.get(name)
        if method is None:
            return UNKNOWN_METHOD, f"{self.topic} has no method {name!r}; it has {', '.join(sorted(self._methods))}"
        try:
            call = method.bound(question.body)
        except _Misfit as misfit:
            return BAD_ARGUMENTS, f"{name}: {misfit}"
        return Message.of(self.topic, await callbacks.call(call), _JSON)

    # ------------------------------------------------------------------ calls

    @overload
    async def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        returns: type[T],
    ) -> T: ...
    @overload
    async def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        returns: Any = Any,
    ) -> Any: ...
    async def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        returns: Any = Any,
    ) -> Any:
        """Call a method that another program has registered, and return its result.

        Args:
            name: of the method.
            args: arguments by position, of types that JSON has.
            named: arguments by name.
            timeout: seconds until the answer is there; default that of the class.
            returns: the type of the result, checked and converted, such as a dataclass.

        Raises RemoteError for what the method raised, CallTimeout without an answer in time (the method may have been
        carried out), BadAnswer for a result of another type, and as ``Producer.request``.
        """
        if isinstance(args, Mapping):
            raise UsageError(
                f"args is of type {type(args).__name__}: a list of the arguments by position is expected. "
                "Arguments by name are named={...}."
            )
        check_kind("args", args, list | tuple, "a list of the arguments by position")
        if named is not None:
            check_kind("named", named, Mapping, "a mapping of the arguments by name")
        if not self._running:
            raise not_running("RPC", stopped=self._stopped)
        arguments = {_BY_POSITION: list(args), **named} if args and named else named or list(args)
        question = Message.of(self.topic, arguments, _JSON, tags=name)
        answer = await self._producer.request(question, timeout=self._timeout if timeout is None else timeout)
        try:
            return msgspec.json.decode(answer.body, type=returns)
        except msgspec.MsgspecError as error:
            raise BadAnswer(f"The result of {name} of {self.topic} is not what was expected: {error}") from error

    @overload
    def proxy(self, service: None = None, *, timeout: float | None = None) -> Proxy[Coroutine[Any, Any, Any]]: ...
    @overload
    def proxy(self, service: Service[T], *, timeout: float | None = None) -> T: ...
    def proxy(self, service: Service[Any] | None = None, *, timeout: float | None = None) -> Any:
        """The methods as methods: ``await rpc.proxy().price("salad", amount=2)``.

        With a ``service``, a class or Protocol of coroutine functions, it is of that type: the arguments are compared
        with its signatures, and the results converted to its annotations. Errors as of ``call``; UsageError for
        arguments that do not fit, AttributeError for a method that it does not have.
        """
        return make_proxy(partial(self._call, timeout), self.topic, service)

    def _call(
        self, timeout: float | None, name: str, args: Sequence[Any], named: Mapping[str, Any], returns: Any
    ) -> Coroutine[Any, Any, Any]:
        return self.call(name, args, named, timeout=timeout, returns=returns)

    # ------------------------------------------------------------------ life

    async def start(self, *, wait: float | None = None) -> None:
        """Start; with functions, it takes calls from then on. ``wait`` and errors as of ``PushConsumer.start``.

        With functions it creates its topic where brokers let producers do so (autoCreateTopicEnable).
        """
        if self._running or self._stopped:
            raise StateError("The RPC was started before, and starts once only: make a new one to start again.")
        clock = asyncio.get_running_loop().time
        end = clock() + (self._settings.start_wait or 0 if wait is None else check_wait("wait", wait))
        await self._producer.start(wait=wait)
        self._running = True
        try:
            if self._methods:
                with contextlib.suppress(ClientError):  # what is missing then, the consumer says
                    await self._producer.create_topic(self.topic)
                await self._consumer.start(wait=max(end - clock(), 0))
        except BaseException:
            await self.stop()
            self._stopped = False
            self._producer = Producer(self.group, settings=self._settings)  # so that it can be started again
            raise

    async def stop(self) -> None:
        """Stop: no more calls are taken; those under way are answered."""
        self._stopped = self._running or self._stopped
        self._running = False
        await self._consumer.stop()
        await self._producer.stop()


def make_proxy(
    call: Callable[[str, Sequence[Any], Mapping[str, Any], Any], R], topic: str, service: Service[T] | None
) -> Proxy[R] | T:
    """A Proxy that calls by ``call``; with a ``service`` of that type. Raises UsageError."""
    if service is None:
        return Proxy(call, topic, None)
    return cast("T", Proxy(call, getattr(service, "__name__", ""), methods_of(service)))
