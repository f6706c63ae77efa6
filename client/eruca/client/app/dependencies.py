"""Dependencies: what a handler needs besides its message, made for each call and given up after it.

Owns the order in which dependencies are made, which is that of the parameters, each provider's own ones first, and the
clean-up in reverse. Providers are functions, coroutine functions, classes, and generators of both kinds with one
``yield``. Invariants: one provider makes one object for each call of a handler, however many ask for it; what was made
is given up, also after an error, and an error of the handler is never swallowed by a clean-up.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from eruca.client import callbacks
from eruca.client.errors import UsageError

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
            value once and cleans up after that. It may have dependencies itself, and take the ReceivedMessage.

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
                made[node.function] = stack.enter_context(contextlib.contextmanager(node.function)(**arguments))
            else:
                made[node.function] = node.function(**arguments)
        return made[node.function]

    with _KeptError() as kept, contextlib.ExitStack() as stack, kept.noticed():
        result = handler.function(**{name: value_of(need) for name, need in handler.needs.items()}, **taken(handler))
    return result


async def call(handler: Node, taken: Taken) -> Any:
    """The result of a coroutine function; its plain dependencies run in threads, classes in the event loop."""
    made: dict[Provider, Any] = {}

    async def value_of(node: Node) -> Any:
        function = node.function
        if function not in made:
            arguments = {name: await value_of(need) for name, need in node.needs.items()} | taken(node)
            if inspect.isasyncgenfunction(function):
                value = await stack.enter_async_context(contextlib.asynccontextmanager(function)(**arguments))
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

    with _KeptError() as kept:
        async with contextlib.AsyncExitStack() as stack:
            with kept.noticed():
                needs = {name: await value_of(need) for name, need in handler.needs.items()}
                result = await handler.function(**needs, **taken(handler))
    return result


@contextlib.asynccontextmanager
async def _in_threads(generator: Provider, arguments: dict[str, Any]) -> AsyncIterator[Any]:
    """A generator of a plain dependency, each step in a thread."""
    around = contextlib.contextmanager(generator)(**arguments)
    value = await callbacks.call(around.__enter__)
    try:
        yield value
    except BaseException as error:
        if not await callbacks.call(around.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await callbacks.call(around.__exit__, None, None, None)


class _KeptError:
    """Raises the error of a call again if a clean-up swallowed it: else the message would count as consumed."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        """Around the call itself."""
        try:
            yield
        except BaseException as error:
            self.error = error
            raise

    def __enter__(self) -> _KeptError:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.error is not None:
            raise self.error
