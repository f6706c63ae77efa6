"""Dependencies: what a handler needs besides its message, made for each call and given up after it.

Owns the order in which dependencies are made, which is that of the parameters, each provider's own ones first, and the
clean-up in reverse. Providers are functions, coroutine functions, classes, and generators of both kinds with one
``yield``. Invariants: one provider makes one object for each call of a handler, however many ask for it; what was made
is given up, also after an error, and an error of the handler is never swallowed by a clean-up; the code behind a
``yield`` is reached only if something was consumed.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from eruca.client import callbacks
from eruca.client.errors import NotConsumed, UsageError
from eruca.client.outcomes import Decision, Later, Reject, Suspend

Provider = Callable[..., Any]
Overrides = Mapping[Provider, Provider]
"""Which provider stands in for which, in a test."""
UNSAID: Final = inspect.Parameter.empty
"""In place of the annotation of a parameter that has none."""


@dataclass(frozen=True, slots=True)
class Depends:
    """In an annotation: who provides the value, as in ``Annotated[Session, Depends(get_session)]``.

    Args:
        provider: a function, a coroutine function, a class, or a generator function of either kind that yields the
            value once and cleans up after that. It may have dependencies itself, and take the ReceivedMessage. What
            the handler raises is raised at the ``yield``, and NotConsumed where it returns Later, Reject or Suspend.

    Raises UsageError.
    """

    provider: Provider

    def __post_init__(self) -> None:
        callbacks.check_callable(self.provider, "The provider of Depends")


@dataclass(slots=True)
class Node:
    """A function that is called with what its parameters ask for: a provider, or the handler itself."""

    function: Provider
    needs: dict[str, Node] = field(default_factory=dict)
    """Dependencies by the name of the parameter."""
    takes: dict[str, Any] = field(default_factory=dict)
    """The annotation of each other parameter; UNSAID without one."""

    @property
    def is_coroutine(self) -> bool:
        """Whether its value needs the event loop."""
        return callbacks.is_coroutine_function(self.function) or inspect.isasyncgenfunction(self.function)

    def walk(self) -> Iterator[Node]:
        """This and all that it needs."""
        for need in self.needs.values():
            yield from need.walk()
        yield self


def node_of(function: Provider, overrides: Overrides, path: tuple[Provider, ...] = ()) -> Node:
    """A function with its dependencies, all resolved. Raises UsageError for a circle and for unknown annotations."""
    if function in path:
        names = " needs ".join(_name(each) for each in (*path[path.index(function) :], function))
        raise UsageError(f"Dependencies in a circle: {names}.")
    node = Node(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in ones have none
        return node
    hints = _hints(function)
    for each in parameters:
        hint = hints.get(each.name, each.annotation)
        depends = next((item for item in get_args(hint)[1:] if isinstance(item, Depends)), None)
        if get_origin(hint) is Annotated and depends is not None:
            provider = overrides.get(depends.provider, depends.provider)
            node.needs[each.name] = node_of(provider, overrides, (*path, function))
        elif each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            node.takes[each.name] = hint
        elif isinstance(each.default, Depends):
            raise UsageError(
                f"{each.name}=Depends(...) of {_name(function)} is a default: write {each.name}: Annotated[..., "
                "Depends(...)]."
            )
    return node


def _hints(function: Provider) -> dict[str, Any]:
    target: Any = function
    while hasattr(target, "func") and not inspect.isroutine(target):  # partials
        target = target.func
    if inspect.isclass(target):
        target = target.__init__
    elif not inspect.isroutine(target):
        target = getattr(target, "__call__", target)  # noqa: B004
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, AttributeError) as error:
        raise UsageError(
            f"The annotations of {_name(function)} cannot be resolved ({error}): define or import the types at the "
            "top of its module."
        ) from None
    except TypeError:  # no annotations to be had, as of built-in ones
        return {}


def _name(function: Provider) -> str:
    return getattr(function, "__qualname__", repr(function))


Taken = Callable[[Node], dict[str, Any]]
"""The values of the parameters that are no dependencies."""


def call_plain(handler: Node, taken: Taken) -> Any:
    """The result of a plain function whose dependencies are all plain, in this thread."""
    made: dict[Provider, Any] = {}

    def value_of(node: Node) -> Any:
        if node.function not in made:
            arguments = {name: value_of(need) for name, need in node.needs.items()} | taken(node)
            if inspect.isgeneratorfunction(node.function):
                made[node.function] = stack.enter_context(_in_this_thread(node.function, arguments))
            else:
                made[node.function] = node.function(**arguments)
        return made[node.function]

    try:
        with contextlib.ExitStack() as stack:
            needs = {name: value_of(need) for name, need in handler.needs.items()}
            return _consumed(handler.function(**needs, **taken(handler)))
    except NotConsumed as told:
        return told.outcome


async def call(handler: Node, taken: Taken) -> Any:
    """The result of a coroutine function; its plain dependencies run in threads, classes in the event loop."""
    made: dict[Provider, Any] = {}

    async def value_of(node: Node) -> Any:
        function = node.function
        if function not in made:
            arguments = {name: await value_of(need) for name, need in node.needs.items()} | taken(node)
            if inspect.isasyncgenfunction(function):
                value = await stack.enter_async_context(_in_the_loop(function, arguments))
            elif inspect.isgeneratorfunction(function):
                value = await stack.enter_async_context(_in_threads(function, arguments))
            elif inspect.isclass(function):
                value = function(**arguments)
            else:
                value = (
                    await callbacks.call(lambda: function(**arguments))
                    if not node.is_coroutine
                    else (await function(**arguments))
                )
            made[function] = value
        return made[function]

    try:
        async with contextlib.AsyncExitStack() as stack:
            needs = {name: await value_of(need) for name, need in handler.needs.items()}
            return _consumed(await handler.function(**needs, **taken(handler)))
    except NotConsumed as told:
        return told.outcome


def _consumed(result: Any) -> Any:
    """The result. Raises NotConsumed for an outcome by which no message of the call is consumed."""
    given_back = isinstance(result, Later | Reject) and not result.consumed
    if given_back or isinstance(result, Suspend) or result is Decision.ROLLBACK:
        raise NotConsumed(result)
    return result


# Each of these raises the error of a call again, also one that the generator has caught: else the message would count
# as consumed, and an outer provider would commit.


@contextlib.contextmanager
def _in_this_thread(generator: Provider, arguments: dict[str, Any]) -> Iterator[Any]:
    """A generator of a plain handler."""
    around = contextlib.contextmanager(generator)(**arguments)
    value = around.__enter__()
    try:
        yield value
    except BaseException as error:
        around.__exit__(type(error), error, error.__traceback__)
        raise
    around.__exit__(None, None, None)


@contextlib.asynccontextmanager
async def _in_the_loop(generator: Provider, arguments: dict[str, Any]) -> AsyncIterator[Any]:
    """An asynchronous generator."""
    around = contextlib.asynccontextmanager(generator)(**arguments)
    value = await around.__aenter__()
    try:
        yield value
    except BaseException as error:
        await around.__aexit__(type(error), error, error.__traceback__)
        raise
    await around.__aexit__(None, None, None)


@contextlib.asynccontextmanager
async def _in_threads(generator: Provider, arguments: dict[str, Any]) -> AsyncIterator[Any]:
    """A generator of a plain dependency of a coroutine, each step in a thread."""
    around = contextlib.contextmanager(generator)(**arguments)
    value = await callbacks.call(around.__enter__)
    try:
        yield value
    except BaseException as error:
        await callbacks.call(around.__exit__, type(error), error, error.__traceback__)
        raise
    await callbacks.call(around.__exit__, None, None, None)
