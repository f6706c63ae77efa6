"""One typed configuration object per daemon: its keys, what they allow, what may change at run time.

Owns: how a field becomes a key and a text becomes a value; what may change at run time; how a configuration is shown.
Must not know: any particular key (they are the fields of the dataclass that is passed in), and where texts come from
(``eruca.remoting.sources``).
Invariant: after ``change`` an object holds only values that its fields allow; a refused change has changed nothing;
paths and secrets never change at run time, and secrets are never shown.

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

A string under a field is its meaning; ``docs/configuration.md`` is made of these.

Change, while it runs (requests 25 and 318)::

    changed = change(config, wanted(body))             # all or nothing; raises BadSetting
    text = properties.amend(text, changed)             # to save it: comments survive

Show (requests 26 and 319)::

    values(config)    # {"brokerName": "broker-a", ...}, in the order of the fields

Types: str, int, float, bool, an Enum (by name), and each of them ``| None`` (None: not set, shown as empty). Every
error raises BadSetting, one sentence that names the key, the value and what is allowed.
"""

import dataclasses
import difflib
import enum
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from eruca.protocol import properties
from eruca.protocol.errors import ProtocolError

__all__ = [
    "BadSetting",
    "Check",
    "Finding",
    "Setting",
    "change",
    "setting",
    "settings_of",
    "unknown_key",
    "values",
    "wanted",
]

C = TypeVar("C")

ENVIRONMENT_PREFIX = "ERUCA_"
LONGEST_CHANGE = 64 << 10
"""Bytes of the properties of one change at run time, which are read at once."""
LARGEST = (1 << 63) - 1
"""Of a whole number without a bound of its own; Java's long."""
_MARK = "eruca.setting"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class BadSetting(ValueError):
    """Settings that cannot be taken: a sentence for each fault. ``warnings`` are what else was found."""

    def __init__(self, *faults: str, warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults
        self.warnings = tuple(warnings)


class Finding(NamedTuple):
    """What is wrong with a key, or looks wrong, as the end of a sentence that begins with it."""

    key: str
    sentence: str
    is_fault: bool = True


Check = Callable[[C, Collection[str]], Iterable[Finding]]
"""Looks at values together. The second argument holds the keys that were given; the others have their defaults."""


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
    valid: Callable[[str], bool] | None = None
    words: str = "text"
    environment: str | None = None
    unmet: str | None = None
    effect: bool = True
    more: str | None = None


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
    valid: Callable[[str], bool] | None = None,
    words: str = "text",
    environment: str | None = None,
    unmet: str | None = None,
    more: str | None = None,
    effect: bool = True,
) -> Any:
    """A dataclass field with its rules; a plain ``name: type = default`` is a setting as well.

    ``key``: the properties key, if it is not the field's name in camel case. ``live``: may change at
    run time (default: it may not). ``important``: -m prints it.
    ``secret``: never shown, never live; the key with ``File`` at its end names a file that holds the value.
    ``path``: names a file or directory (several joined by a comma), absolute, never live.
    ``at_least``, ``at_most``: bounds of a number, both included. ``one_of``: the allowed
    texts of a str. ``pattern``: a regular expression that the whole text must match; ``valid``: a
    function that says whether a text is allowed; errors explain both by ``words``.
    ``environment``: a variable that replaces the default. ``unmet``: a value other
    than the default is accepted without effect; the warning says what follows from that. ``more``: it
    names a file with more settings, those whose keys begin so; they win over the configuration file.
    ``effect`` False: accepted and shown without a warning, as RocketMQ's files may set it, and changes nothing.
    """
    if live and (path or secret):
        raise TypeError("a path or a secret is never changed from remote: it cannot be live")
    rules = _Rules(
        key=key,
        live=live,
        important=important,
        secret=secret,
        path=path,
        at_least=at_least,
        at_most=at_most,
        one_of=tuple(one_of),
        pattern=pattern,
        valid=valid,
        words=words,
        environment=environment,
        unmet=unmet,
        effect=effect and unmet is None,
        more=more,
    )
    return dataclasses.field(default=default, metadata={_MARK: rules})


@dataclasses.dataclass(frozen=True)
class Setting:
    """One key of a configuration class, with everything that is known about it."""

    key: str
    place: tuple[str, ...]  # attribute names, from the configuration object down
    kind: type  # str, int, float, bool or an Enum
    optional: bool
    default: Any
    rules: _Rules

    @property
    def variable(self) -> str:
        """The variable of the environment: ``ERUCA_`` and the name of the field."""
        return ENVIRONMENT_PREFIX + self.place[-1].upper()

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
        if self.kind is int and not -LARGEST <= found <= LARGEST:
            raise BadSetting(f"{self.key}: '{text}' is not allowed; write a number of 64 bits")
        if self.rules.one_of and found not in self.rules.one_of:
            raise self._refusal(text)
        if self.rules.pattern is not None and re.fullmatch(self.rules.pattern, text) is None:
            raise self._refusal(text)
        if self.rules.valid is not None and not self.rules.valid(text):
            raise self._refusal(text)
        if self.kind is str:
            self._check_text(text)
        return found

    def _check_text(self, text: str) -> None:
        if _CONTROL.search(text) is not None:
            raise self._refusal(text)
        if self.rules.path and (text or self.default != ""):
            for path in text.split(","):
                if not _is_absolute(path):
                    raise self._refusal(path)

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
        if self.rules.path:
            return "an absolute path, without ~ and ${...}"
        words = {bool: "true or false", int: "a whole number", float: "a number", str: self.rules.words}
        low, high = self.rules.at_least, self.rules.at_most
        if low is not None and high is not None:
            return f"{words[self.kind]} from {low} to {high}"
        if low is not None:
            return f"{words[self.kind]}, at least {low}"
        return words[self.kind] + (f", at most {high}" if high is not None else "")

    def _refusal(self, text: str) -> BadSetting:
        shown = "(not shown)" if self.rules.secret else repr(text)
        return BadSetting(f"{self.key}: {shown} is not allowed; write {self.allowed()}")


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


def change(
    config: C, changes: Mapping[str, str], check: Check[C] | None = None, given: Collection[str] = ()
) -> dict[str, str]:
    """Change a running configuration in place, all of ``changes`` or none; ``given`` are the keys of the start.

    Returns the keys with their new texts. Raises BadSetting for an unknown key, one that may not change at run time, a
    value that is not allowed, and values that, as ``check`` finds, do not fit together since this change.
    """
    known = settings_of(type(config))
    new: list[tuple[Setting, Any]] = []
    for key, text in changes.items():
        if key not in known:
            raise BadSetting(unknown_key(key, known))
        if not known[key].rules.live:
            raise BadSetting(
                f"{key} cannot be changed while the daemon runs; set it in the configuration file and restart"
            )
        new.append((known[key], known[key].value(text)))
    old = [(item, item.get(config)) for item, _ in new]
    set_ones = {*given, *changes}
    found = set(check(config, set_ones)) if check is not None else set()
    for item, value in new:
        item.put(config, value)
    after = check(config, set_ones) if check is not None else ()
    faults = [each for each in after if each.is_fault and each not in found]
    if faults:
        for item, value in old:
            item.put(config, value)
        raise BadSetting(*(f"{each.key} {each.sentence}" for each in faults))
    return {item.key: item.text(config) for item, _ in new}


def wanted(body: bytes) -> dict[str, str]:
    """The settings of a request that changes some (25, 318), as texts by key. Raises BadSetting."""
    if len(body) > LONGEST_CHANGE:
        raise BadSetting(f"a change of settings of {len(body)} bytes is too long: at most {LONGEST_CHANGE} are taken")
    try:
        return properties.parse(properties.decode(body))
    except ProtocolError as fault:
        raise BadSetting(f"the settings cannot be read: {fault}") from None


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
        found.append(Setting(rules.key or _camel(field.name), place, plain, optional, field.default, rules))
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


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and path == path.strip() and "${" not in path and "/~" not in path


def unknown_key(key: str, known: Mapping[str, Setting]) -> str:
    """The sentence about a key, or a variable, that no field has; it names the nearest one."""
    names = [*known, *(item.variable for item in known.values())]
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=0.75)
    hint = f" (did you mean {folded[close[0]]}?)" if close else ""
    return f"unknown key {key}{hint}"
