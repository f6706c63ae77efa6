"""One typed configuration object per daemon, read from file, environment and command line.

Owns: how a field becomes a key and a text becomes a value; the sources of values and their order;
what may change at run time; how a configuration is shown.
Must not know: any particular key. The keys are the fields of the dataclass that is passed in.
Invariant: after ``read`` or ``change`` an object holds only values that its fields allow; a refused
change has changed nothing; paths and secrets never change at run time, and secrets are never shown.

Declare::

    class FlushDiskType(StrEnum):
        ASYNC_FLUSH = "ASYNC_FLUSH"
        SYNC_FLUSH = "SYNC_FLUSH"

    @dataclass(kw_only=True)
    class BrokerConfig:
        broker_name: str = "broker-a"                          # key brokerName, fixed at start
        broker_ip1: str = setting("", key="brokerIP1")         # a key that is not the camel case
        listen_port: int = setting(10911, at_least=0, at_most=65535, important=True)
        flush_disk_type: FlushDiskType = setting(FlushDiskType.ASYNC_FLUSH, live=True)
        namesrv_addr: str | None = setting(None, environment="NAMESRV_ADDR")
        store: StoreConfig = field(default_factory=StoreConfig)   # nested: its keys join these

Read (a daemon's ``main`` calls ``eruca.remoting.command_line.command_line``, which ends here)::

    start = read(BrokerConfig, text=properties_text, environment=os.environ, given={})
    start.config      # the BrokerConfig
    start.warnings    # sentences to log: unknown keys by name, values that look wrong

Change, while it runs (requests 25 and 318)::

    changed = change(config, properties.parse(body))   # all or nothing; raises BadSetting
    text = properties.amend(text, changed)             # to save it: comments survive

Show (requests 26 and 319)::

    values(config)    # {"brokerName": "broker-a", ...}, in the order of the fields

A value is taken from the first of: the command line, an environment variable ``ERUCA_<FIELD>``
(``ERUCA_LISTEN_PORT``), the file, the variable that the field names itself (as RocketMQ takes
``NAMESRV_ADDR``), the default. Types: str, int, float, bool, an Enum (by name), and each of them
``| None`` (None: not set, shown as empty). Every error raises BadSetting, one sentence that names
the key, the value and what is allowed.
"""

import dataclasses
import difflib
import enum
import functools
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from eruca.protocol import properties
from eruca.protocol.errors import ProtocolError

__all__ = [
    "BadSetting",
    "Setting",
    "Start",
    "change",
    "read",
    "setting",
    "settings_of",
    "values",
]

C = TypeVar("C")

ENVIRONMENT_PREFIX = "ERUCA_"
_NO_KEYS = {"ERUCA_PURE"}
"""Variables with the prefix that choose code, not a setting."""
_MARK = "eruca.setting"


class BadSetting(ValueError):
    """A setting that cannot be taken; the message is one sentence for the operator."""


@dataclasses.dataclass(frozen=True)
class _Rules:
    """The rules of a field, as ``setting`` declares them."""

    key: str | None = None
    live: bool = False
    important: bool = False
    secret: bool = False
    path: bool = False
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    pattern: str | None = None
    words: str = "text"
    environment: str | None = None
    unmet: str | None = None


def setting(
    default: Any,
    *,
    key: str | None = None,
    live: bool = False,
    important: bool = False,
    secret: bool = False,
    path: bool = False,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: Sequence[str] = (),
    pattern: str | None = None,
    words: str = "text",
    environment: str | None = None,
    unmet: str | None = None,
) -> Any:
    """A dataclass field with its rules; a plain ``name: type = default`` is a setting as well.

    ``key``: the properties key, if it is not the field's name in camel case. ``live``: may change at
    run time (default: it may not). ``important``: -m prints it.
    ``secret``: never shown, never live. ``path``: names a file or directory, never live.
    ``at_least``, ``at_most``: bounds of a number, both included. ``one_of``: the allowed
    texts of a str. ``pattern``: a regular expression that the whole text must match; errors explain
    it by ``words``. ``environment``: a variable that replaces the default. ``unmet``: a value other
    than the default is accepted without effect; the warning says what follows from that.
    """
    if live and (path or secret):
        raise TypeError("a path or a secret is never changed from remote: it cannot be live")
    rules = _Rules(
        key, live, important, secret, path, at_least, at_most, tuple(one_of), pattern, words, environment, unmet
    )
    return dataclasses.field(default=default, metadata={_MARK: rules})


@dataclasses.dataclass(frozen=True)
class Setting:
    """One key of a configuration class, with everything that is known about it."""

    key: str
    place: tuple[str, ...]  # attribute names, from the configuration object down
    kind: type  # str, int, float, bool or an Enum
    optional: bool
    rules: _Rules

    def get(self, config: object) -> Any:
        for name in self.place:
            config = getattr(config, name)
        return config

    def put(self, config: object, value: Any) -> None:
        for name in self.place[:-1]:
            config = getattr(config, name)
        setattr(config, self.place[-1], value)

    def value(self, text: str) -> Any:
        """The value that ``text`` means. Raises BadSetting."""
        if self.optional and not text.strip():
            return None
        try:
            found = _value(self.kind, text)
        except (ValueError, KeyError):
            raise self._refusal(text) from None
        low, high = self.rules.at_least, self.rules.at_most
        if (low is not None and found < low) or (high is not None and found > high):
            raise self._refusal(text)
        if self.rules.one_of and found not in self.rules.one_of:
            raise self._refusal(text)
        if self.rules.pattern is not None and re.fullmatch(self.rules.pattern, text) is None:
            raise self._refusal(text)
        return found

    def text(self, config: object) -> str:
        """The value as a file contains it; empty for None."""
        value = self.get(config)
        if value is None:
            return ""
        if isinstance(value, enum.Enum):
            return value.name
        return str(value).lower() if isinstance(value, bool) else str(value)

    def allowed(self) -> str:
        """What may be written, in words: ``a whole number from 0 to 65535``."""
        if issubclass(self.kind, enum.Enum):
            return "one of " + ", ".join(self.kind.__members__)
        if self.rules.one_of:
            return "one of " + ", ".join(self.rules.one_of)
        words = {bool: "true or false", int: "a whole number", float: "a number", str: self.rules.words}
        low, high = self.rules.at_least, self.rules.at_most
        if low is not None and high is not None:
            return f"{words[self.kind]} from {low} to {high}"
        if low is not None:
            return f"{words[self.kind]}, at least {low}"
        return words[self.kind] + (f", at most {high}" if high is not None else "")

    def _refusal(self, text: str) -> BadSetting:
        shown = "(not shown)" if self.rules.secret else f"'{text}'"
        return BadSetting(f"{self.key}: {shown} is not allowed; write {self.allowed()}")


@dataclasses.dataclass(frozen=True)
class Start(Generic[C]):
    """A configuration and its origin.

    ``warnings`` are sentences for the log; ``file`` and ``shown`` come from the command line: the
    named properties file, and the text to print instead of a start.
    """

    config: C
    warnings: list[str]
    file: str | None = None
    shown: str | None = None


def settings_of(kind: type) -> dict[str, Setting]:
    """Every key of a configuration class, nested dataclasses included, in the order of fields.

    Raises TypeError if two fields share a key or a field has an unsupported type.
    """
    found: dict[str, Setting] = {}
    for item in _settings(kind, ()):
        if item.key in found:
            raise TypeError(f"two fields of {kind.__name__} have the key {item.key}")
        found[item.key] = item
    return found


def read(
    kind: type[C],
    *,
    text: str = "",
    environment: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
    source: str = "the configuration",
) -> Start[C]:
    """A ``kind`` from a properties ``text``, an environment and the command line.

    ``environment`` defaults to an empty one, ``given`` maps keys to texts and wins; ``source``
    names the text in messages. Raises BadSetting.
    """
    known = settings_of(kind)
    warnings: list[str] = []
    try:
        in_file = properties.parse(text)
    except ProtocolError as broken:
        raise BadSetting(f"{source}: {broken}") from None
    layers = [
        ("", _own_variables(known, environment or {})),
        (source, in_file),
        ("the environment", _prefixed_variables(known, environment or {})),
        ("the command line", dict(given or {})),
    ]
    config, plain = kind(), kind()
    for place, texts in layers:
        for key, value in texts.items():
            if key in known:
                warnings.extend(_doubts(known[key], value))
                known[key].put(config, known[key].value(value))
            else:
                warnings.append(f"{_unknown(key, known)} in {place}; it is ignored")
    warnings.extend(
        f"{item.key}={item.text(config)} has no effect: {item.rules.unmet}"
        for item in known.values()
        if item.rules.unmet is not None and item.get(config) != item.get(plain)
    )
    return Start(config, warnings)


def change(config: object, changes: Mapping[str, str]) -> dict[str, str]:
    """Change a running configuration in place, all of ``changes`` or none.

    Returns the keys with their new texts. Raises BadSetting for an unknown key, one that may
    not change at run time, and a value that is not allowed.
    """
    known = settings_of(type(config))
    new: list[tuple[Setting, Any]] = []
    for key, text in changes.items():
        if key not in known:
            raise BadSetting(_unknown(key, known))
        if not known[key].rules.live:
            raise BadSetting(
                f"{key} cannot be changed while the daemon runs; set it in the configuration file and restart"
            )
        new.append((known[key], known[key].value(text)))
    for item, value in new:
        item.put(config, value)
    return {item.key: item.text(config) for item, _ in new}


def values(config: object, *, important: bool = False) -> dict[str, str]:
    """Every key with its value as text, without secrets; optionally only the important ones."""
    return {
        item.key: item.text(config)
        for item in settings_of(type(config)).values()
        if not item.rules.secret and (item.rules.important or not important)
    }


@functools.cache
def _settings(kind: type, above: tuple[str, ...]) -> tuple[Setting, ...]:
    """The fields of a class; cached, because resolving annotations is a third of the CPU of a broker's start."""
    found: list[Setting] = []
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        place = (*above, field.name)
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            found += _settings(hint, place)
            continue
        rules = field.metadata.get(_MARK, _Rules())
        plain, optional = _plain(hint)
        if plain not in (str, int, float, bool) and not _is_enum(plain):
            raise TypeError(f"{kind.__name__}.{field.name}: no text can mean a {hint}")
        found.append(Setting(rules.key or _camel(field.name), place, plain, optional, rules))
    return tuple(found)


def _plain(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(hint) if each is not type(None)]
        if len(others) == 1:
            return others[0], True
    return hint, False


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _value(kind: type, text: str) -> Any:
    if kind is str:
        return text
    text = text.strip()
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if issubclass(kind, enum.Enum):
        return kind[text]
    if "_" in text or not text.isascii():  # Python's notation, not an operator's
        raise ValueError(text)
    number = int(text) if kind is int else float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _own_variables(known: Mapping[str, Setting], environment: Mapping[str, str]) -> dict[str, str]:
    return {
        key: environment[item.rules.environment]
        for key, item in known.items()
        if item.rules.environment and environment.get(item.rules.environment)
    }


def _prefixed_variables(known: Mapping[str, Setting], environment: Mapping[str, str]) -> dict[str, str]:
    """Keys by variable; an unknown variable keeps its own name, for a warning."""
    keys = {_variable(item): key for key, item in known.items()}
    return {
        keys.get(name, name): text
        for name, text in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NO_KEYS
    }


def _variable(item: Setting) -> str:
    return ENVIRONMENT_PREFIX + item.place[-1].upper()


def _doubts(item: Setting, text: str) -> Iterator[str]:
    if item.kind is str and not item.rules.secret and text != text.strip():
        yield f"the value of {item.key} begins or ends with a blank, which is part of it: '{text}'"


def _unknown(key: str, known: Mapping[str, Setting]) -> str:
    names = [*known, *(_variable(item) for item in known.values())]
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=0.75)
    hint = f" (did you mean {folded[close[0]]}?)" if close else ""
    return f"unknown key {key}{hint}"
