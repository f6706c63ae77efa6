"""Settings by name: from a mapping, such as a table of a TOML file, or from variables of the environment.

Owns how variables become a mapping and how its texts become values of a dataclass's types, and the sentence about a
name that nobody knows. Knows no setting. Invariant: an error names a setting or its variable, and never shows the value
of one that may be a secret.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from eruca.client.errors import BadConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")

FILE = "_FILE"
"""The end of a variable's name whose value is the path of a file with the value, as of secrets of Docker."""
CLOSE = 0.8
"""How similar an unknown variable must be to a known one to count as a misspelt one; others are somebody else's."""

_SAME_AS: dict[str, tuple[str, ...]] = {
    "address": ("nameserver",),
    "auto_offset_reset": ("start_from",),
    "batch_size": ("pull_batch_size", "consume_message_batch_max_size"),
    "bootstrap_servers": ("nameserver",),
    "consume_from": ("start_from",),
    "consume_from_where": ("start_from",),
    "consume_thread_max": ("concurrency",),
    "consume_thread_min": ("concurrency",),
    "consume_thread_nums": ("concurrency",),
    "consumer_group": ("group",),
    "enable_auto_commit": ("auto_commit",),
    "endpoints": ("nameserver",),
    "filter": ("expression",),
    "from_where": ("start_from",),
    "group_id": ("group",),
    "initial_position": ("start_from",),
    "max_attempts": ("max_reconsume_times", "retries"),
    "max_deliver": ("max_reconsume_times",),
    "max_retries": ("max_reconsume_times", "retries"),
    "max_workers": ("concurrency",),
    "message_model": ("broadcast",),
    "name_server": ("nameserver",),
    "name_srv": ("nameserver",),
    "namesrv": ("nameserver",),
    "namesrv_addr": ("nameserver",),
    "offset_reset": ("start_from",),
    "prefetch_count": ("pull_threshold_for_queue",),
    "producer_group": ("group",),
    "retry_times_when_send_failed": ("retries",),
    "selector": ("expression",),
    "servers": ("nameserver",),
    "sub_expression": ("expression",),
    "tag": ("tags", "expression"),
    "tags": ("expression",),
    "workers": ("concurrency",),
}
"""Words of other clients, and those of ours that mean the same: the first that is known counts."""


Place = tuple[str, ...]
"""The path of a setting in nested mappings."""


class Variable(NamedTuple):
    """Where a setting came from, and its text; None for a secret."""

    name: str
    text: str | None


def collected(
    environment: Mapping[str, str],
    prefix: str,
    names: Mapping[str, Place],
    secrets: Collection[str],
    mistaken: Mapping[str, str],
) -> tuple[dict[str, Any], dict[Place, Variable]]:
    """The values that variables with this prefix give, nested by the path of each name, and their variables.

    Args:
        names: what follows the prefix, and the path of the setting.
        secrets: the names that may also come from a file, by a variable that ends with ``_FILE``.
        mistaken: wrong names that people take for one of them.

    Raises BadConfig for a variable that is close to a known one but not it, and for a file that cannot be read.
    """
    known = {*names, *(f"{name}{FILE}" for name in secrets)}
    found: dict[str, Any] = {}
    variables: dict[Place, Variable] = {}
    for variable in sorted(environment):
        name = variable.removeprefix(prefix)
        if name == variable or not environment[variable].strip():
            continue
        if name not in known:
            close = mistaken.get(name) or nearest(name, known, CLOSE)
            if close is not None:
                raise BadConfig(f"the variable {variable} is not known: did you mean {prefix}{close}?")
            continue
        value = environment[variable].strip()
        if name not in names:
            name = name.removesuffix(FILE)
            if environment.get(prefix + name, "").strip():
                raise BadConfig(f"{variable} and {prefix}{name} are both set: leave one of them out")
            value = _content(variable, value)
        put(found, names[name], value)
        variables[names[name]] = Variable(variable, None if name in secrets else value)
    return found, variables


def put(values: dict[str, Any], place: Place, value: object) -> dict[str, Any]:
    """The mapping with one more value in it, nested by its path."""
    within = values
    *outer, last = place
    for part in outer:
        within = within.setdefault(part, {})
    within[last] = value
    return values


def told_by_variable(
    error: BadConfig, variables: Mapping[Place, Variable], read: Callable[[Mapping[str, Any]], object]
) -> BadConfig:
    """The error, with the variable and its text if that alone is wrong: ``read`` raises the same error for it."""
    for place, variable in variables.items():
        if variable.text is None:
            continue
        try:
            read(put({}, place, variable.text))
        except BadConfig as alone:
            if str(alone) == str(error):
                return BadConfig(f'{variable.name}="{variable.text}": {error}')
    return error


def _content(variable: str, path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f'{variable}: the file "{path}" cannot be read: {error}') from None


def converted(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """A dataclass made of values by name; texts become numbers, flags and tuples where its types say so.

    ``where`` stands before a name in sentences. Raises BadConfig.
    """
    hints = get_type_hints(kind)
    check_names(values, hints, where)
    for each in fields(kind):
        if each.name not in values and each.default is each.default_factory is MISSING:
            raise BadConfig(f"{where}{each.name} is missing")
    return kind(**{name: _converted(f"{where}{name}", value, hints[name]) for name, value in values.items()})


def _converted(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, str) and str in getattr(hint, "__args__", ()):
        return value  # a path may also be an object, which msgspec does not know
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError:
        raise BadConfig(f"{name} is not allowed: {_expected(hint)} is expected") from None


def _expected(hint: Any) -> str:
    """What a type is for people."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) in (tuple, Sequence):
        return "a list of texts"
    if get_args(hint):
        return " or ".join(dict.fromkeys(_expected(each) for each in get_args(hint) if each is not NoneType))
    return _KINDS[hint]


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def check_names(given: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Raise BadConfig, with the nearest known name, for a name that is not known."""
    names = list(known)
    for name in given:
        if name not in names:
            same = [each for each in _SAME_AS.get(name, ()) if each in names]
            close = same[0] if same else nearest(name, names)
            advice = f"did you mean {where}{close}?" if close else f"known are {', '.join(sorted(names))}"
            raise BadConfig(f"{where}{name} is not known: {advice}")


def known_options(kind: type[K]) -> type[K]:
    """A class whose constructor raises BadConfig, with the nearest name, for an argument that it does not know."""
    construct = kind.__init__

    @functools.wraps(construct)
    def checked(self: K, *args: Any, **kwargs: Any) -> None:
        try:
            construct(self, *args, **kwargs)
        except TypeError:
            _check_keywords(kind.__name__, construct, kwargs)
            _check_positions(kind.__name__, construct, args)
            raise

    setattr(kind, "__init__", checked)  # noqa: B010  # as a method it would be of another type for each class
    return kind


def known_keywords(method: Callable[P, R]) -> Callable[P, R]:
    """A method that raises BadConfig, with the nearest name, for an argument that it does not know."""

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except TypeError:
            _check_keywords(method.__name__, method, kwargs)
            _check_positions(method.__name__, method, args[1:])
            raise

    return checked


def _check_keywords(name: str, call: Callable[..., object], given: Iterable[str]) -> None:
    """Raise BadConfig for a keyword that a constructor or method, named ``name`` in the sentence, does not take."""
    parameters = inspect.signature(call).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return
    named = [each.name for each in parameters if each.kind is not inspect.Parameter.POSITIONAL_ONLY]
    try:
        check_names(given, named[1:])
    except BadConfig as error:
        raise BadConfig(f"{name}: {error}") from None


def _check_positions(name: str, call: Callable[..., object], given: Sequence[object]) -> None:
    """Raise BadConfig for more values without a name than a constructor or method takes, ``self`` not counted."""
    parameters = list(inspect.signature(call).parameters.values())[1:]
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [each.name for each in parameters if each.kind in kinds]
    if len(given) <= len(taken):
        return
    listener = _NO_LISTENER.get(name) if callable(given[len(taken)]) else None
    named = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    first = f"{' and '.join(taken) or 'nothing'} without a name"
    count = "1 value was" if len(given) == 1 else f"{len(given)} values were"
    advice = listener or (f"give the others by name, such as {named[0]}=" if named else "leave the others out")
    raise BadConfig(f"{name}: it takes {first}, but {count} given: {advice}")


_NO_LISTENER = dict.fromkeys(
    ("LitePullConsumer", "PullConsumer"), "its messages are polled, PushConsumer passes them to a listener"
)
"""Classes to which people give a listener, and what to do."""


def nearest(name: object, known: Iterable[str], close: float = 0.6) -> str | None:
    """The known name that is most like this one; None where none is ``close``, from 0 to 1."""
    from difflib import get_close_matches  # dear to import, and for errors only

    return next(iter(get_close_matches(str(name), sorted(known), 1, close)), None)
