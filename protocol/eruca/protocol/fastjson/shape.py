"""Typed values from text, with fastjson's leniency.

Owns the rules by which an untyped value fits a declared type: null and absent members
leave the default, unknown members are dropped, numbers and booleans may be written as
text and text as numbers, a map's typed keys may be quoted or bare.  Must not know any
particular body.

Invariant: a reader returns a value of its type or raises ProtocolError.
"""

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import inspect

from eruca.protocol.errors import LongDialect, ProtocolError
from eruca.protocol.fastjson.plain import MAX_SIZE, loads, quote_integer_keys
from eruca.protocol.fastjson.writer import double_text

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Fit = Callable[[Any], Any]
"""Converts a plain value to a typed one; raises _Misfit."""

_TRUE_TEXTS = frozenset({"true", "1", "y", "t"})
_FALSE_TEXTS = frozenset({"false", "0", "n", "f"})
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)
_INTEGER_TEXT = re.compile(r"[-+]?[0-9]{1,19}")
_NUMBER_TEXT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_NULL_TEXTS = frozenset({"", "null", "NULL"})


class _Misfit(Exception):
    """A value that cannot become the declared type; the path grows on the way out."""

    def __init__(self, wanted: str, found: Any) -> None:
        super().__init__(wanted)
        self.path: list[str] = []
        self.what = f"{wanted} expected, found {_describe(found)}"

    def inside(self, step: object) -> "_Misfit":
        self.path.insert(0, str(step)[:80])
        return self


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return repr(value[:60]) if isinstance(value, str) else repr(value)


class Read(Protocol[T_co]):
    """Reads a text. What is no plain JSON of the type may have ``dialect`` bytes; more raises LongDialect."""

    def __call__(self, data: bytes | bytearray | memoryview | str, dialect: int = MAX_SIZE) -> T_co:
        """The value; raises ProtocolError."""


_READERS: dict[Any, Any] = {}
_RULES: dict[Any, Fit] = {}


def reader(kind: type[T]) -> Read[T]:
    """The reader of ``kind`` (a msgspec Struct, or any type msgspec can describe).

    Standard JSON that fits exactly, and fastjson's bare integer keys, are decoded by
    msgspec's compiled decoder; everything else by the tolerant parser and the rules of
    this module.  The reader raises ProtocolError for what is malformed or does not fit.
    """
    found: Read[T] | None = _READERS.get(kind)
    if found is None:
        found = _READERS[kind] = _make_reader(kind)
    return found


def fit(kind: type[T], value: Any) -> T:
    """Make a ``kind`` of a value from ``loads``; raises ProtocolError if it does not fit."""
    try:
        if value is None:
            raise _Misfit("a value", None)
        fitted: T = _rule(kind)(value)
    except _Misfit as misfit:
        where = ".".join(misfit.path) or "the text"
        raise ProtocolError(f"{where}: {misfit.what}") from None
    return fitted


def _rule(kind: Any) -> Fit:
    found = _RULES.get(kind)
    if found is None:
        found = _RULES[kind] = _plan(inspect.type_info(kind))
    return found


def _make_reader(kind: type[T]) -> Read[T]:
    _rule(kind)  # fails early for a kind without a rule
    try:
        decoder = msgspec.json.Decoder(kind)
    except TypeError:  # maps keyed by objects, which JSON does not have
        return lambda data, dialect=MAX_SIZE: fit(kind, loads(data))
    integer_keys = _has_integer_keys(inspect.type_info(kind))

    def read(data: bytes | bytearray | memoryview | str, dialect: int = MAX_SIZE) -> T:
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        plain = b'"$ref"' not in raw
        if plain:
            try:
                return decoder.decode(raw)
            except _UNREADABLE:
                pass
        if dialect < len(raw) <= MAX_SIZE:
            raise LongDialect(
                f"it has {len(raw)} bytes and is no plain JSON with members of the right types; such a text may have "
                f"{dialect} bytes"
            )
        if plain and integer_keys:  # else it would not help, and it holds the interpreter for as long as it takes
            try:
                return decoder.decode(quote_integer_keys(raw))
            except _UNREADABLE:
                pass
        return fit(kind, loads(raw))

    return read


def _has_integer_keys(info: inspect.Type) -> bool:
    """Whether a type has a map with integer keys anywhere."""
    match info:
        case inspect.DictType():
            return isinstance(info.key_type, inspect.IntType) or _has_integer_keys(info.value_type)
        case inspect.StructType():
            return any(_has_integer_keys(field.type) for field in info.fields)
        case inspect.ListType() | inspect.SetType() | inspect.VarTupleType():
            return _has_integer_keys(info.item_type)
        case inspect.UnionType():
            return any(_has_integer_keys(each) for each in info.types)
        case _:
            return False


def _plan(info: inspect.Type) -> Fit:
    if (plain := _PLAIN.get(type(info))) is not None:
        return plain
    match info:
        case inspect.IntType():
            low = -(2**63) if info.ge is None else info.ge
            high = 2**63 - 1 if info.le is None else info.le
            return lambda value: _integer(value, low, high)
        case inspect.StructType():
            return _struct(info.cls)
        case inspect.DictType():
            return _map(_plan_key(info.key_type), _plan(info.value_type))
        case inspect.ListType() | inspect.SetType() | inspect.VarTupleType():
            return _sequence(_plan(info.item_type), _SEQUENCES[type(info)])
        case inspect.UnionType():
            (one,) = [each for each in info.types if not isinstance(each, inspect.NoneType)]
            return _plan(one)
        case _:
            raise TypeError(f"no fastjson rule for {info}")


def _plan_key(info: inspect.Type) -> Fit:
    """As _plan, for map keys: a struct's key text is itself a JSON text."""
    fit = _plan(info)
    if not isinstance(info, inspect.StructType):
        return fit
    exact = msgspec.json.Decoder(info.cls)

    def key(text: str) -> Any:
        try:
            return exact.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return fit(loads(text))

    return key


@cache
def _struct(cls: type[msgspec.Struct]) -> Fit:
    plans: dict[str, tuple[str, Fit]] = {}

    def struct(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Misfit("an object", value)
        members = {}
        for name, (attribute, fit) in plans.items():
            member = value.get(name)
            if member is None:
                continue
            try:
                fitted = fit(member)
            except _Misfit as misfit:
                raise misfit.inside(name) from None
            if fitted is not None:
                members[attribute] = fitted
        return cls(**members)

    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        plans[field.encode_name] = (field.name, _plan(field.type))
    return struct


def _map(fit_key: Fit, fit: Fit) -> Fit:
    def mapping(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _Misfit("an object", value)
        result = {}
        for key, member in value.items():
            if member is None:
                continue
            try:
                result[fit_key(key)] = fit(member)
            except _Misfit as misfit:
                raise misfit.inside(key) from None
        return result

    return mapping


def _sequence(fit: Fit, make: Callable[[list[Any]], Any]) -> Fit:
    def sequence(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Misfit("a list", value)
        result = []
        for index, member in enumerate(value):
            if member is None:
                continue
            try:
                result.append(fit(member))
            except _Misfit as misfit:
                raise misfit.inside(index) from None
        return make(result)

    return sequence


def _integer(value: Any, low: int, high: int) -> int | None:
    number = value
    if isinstance(value, str):
        if value in _NULL_TEXTS:
            return None
        if not _INTEGER_TEXT.fullmatch(value):
            raise _Misfit("an integer", value)
        number = int(value)
    elif isinstance(value, float):
        number = int(value)
    elif not isinstance(value, int):
        raise _Misfit("an integer", value)
    if not low <= number <= high:
        raise _Misfit(f"an integer from {low} to {high}", value)
    return int(number)


def _double(value: Any) -> float | None:
    if isinstance(value, str):
        if value in _NULL_TEXTS:
            return None
        if not _NUMBER_TEXT.fullmatch(value):
            raise _Misfit("a number", value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _Misfit("a number", value)
    try:
        number = float(value)
    except OverflowError:
        raise _Misfit("a number", value) from None
    if not math.isfinite(number):
        raise _Misfit("a number", value)
    return number


def _boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value == 1
    if isinstance(value, str):
        if value in _NULL_TEXTS:
            return None
        if value.lower() in _TRUE_TEXTS:
            return True
        if value.lower() in _FALSE_TEXTS:
            return False
    raise _Misfit("a boolean", value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, int):
        return str(value)
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise _Misfit("text", value) from None


_PLAIN: Final[dict[type[inspect.Type], Fit]] = {
    inspect.FloatType: _double,
    inspect.BoolType: _boolean,
    inspect.StrType: _text,
    inspect.AnyType: lambda value: value,
}
_SEQUENCES: Final[dict[type[inspect.Type], type]] = {
    inspect.ListType: list,
    inspect.SetType: set,
    inspect.VarTupleType: tuple,
}
