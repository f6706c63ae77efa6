"""The parts of an SQL92 expression as functions of a message's properties.

Owns the types, the three-valued logic and the conversions of RocketMQ's filter (the classes of
``org.apache.rocketmq.filter.expression`` in 5.3.3). Must not know the text of expressions (``sql92``). Properties are
texts; a missing one is unknown (None). Invariant: a node evaluates to a value of its kind or None, or raises
``NotComparable``, which ends the evaluation of the whole expression.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from eruca.protocol.java_numbers import INTEGER, LONG, double_order, read_double, read_whole

Properties = Mapping[str, str]
Value = str | int | float | bool | None
Evaluate = Callable[[Properties], Value]


class NotComparable(Exception):
    """A message cannot be evaluated: a property is not a number where it must be, or a boolean meets a text."""


class Invalid(Exception):
    """Parts that must not be combined; the message says why."""


class Kind(Enum):
    """The type of a part's values, in Java's words."""

    TEXT = "String"
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"
    TRUTH = "Boolean"
    NOTHING = "null"


NUMBERS = frozenset((Kind.INTEGER, Kind.LONG, Kind.DOUBLE))


class Node(NamedTuple):
    """One part. ``value`` is valid if it is ``fixed``; ``literal``: the source has a constant."""

    kind: Kind
    evaluate: Evaluate
    fixed: bool = False
    literal: bool = False
    value: Value = None
    name: str | None = None
    """The name, if the part is a property."""
    depth: int = 1


def constant(kind: Kind, value: Value) -> Node:
    """A literal."""
    return Node(kind, lambda _: value, fixed=True, literal=True, value=value)


def number(text: str) -> Node:
    """A literal in digits. Raises Invalid for one that is out of range: Java's Long, or a double above 0."""
    if text.isdecimal() or text[-1] in "lL":
        digits = text.rstrip("lL")
        if len(digits) > 19 or (whole := int(digits)) > LONG:
            raise Invalid(f"{digits} is larger than {LONG}")
        return constant(Kind.INTEGER if whole <= INTEGER else Kind.LONG, whole)
    value = float(text)
    if value in (0.0, float("inf")):
        raise Invalid(f"{text} is not within the numbers from 4.9E-324 to 1.7976931348623157E308")
    return constant(Kind.DOUBLE, value)


def property_of(name: str) -> Node:
    """A property of the message."""
    return Node(Kind.TEXT, lambda properties: properties.get(name), name=name)


def truth(node: Node) -> Node:
    """``node`` as a condition; a property counts as false. Raises Invalid for numbers and texts."""
    if node.kind is Kind.TRUTH or (node.kind is Kind.NOTHING and node.literal):
        return node
    name = node.name
    if name is None:
        raise Invalid("a condition is expected here, not a number or a text")
    return Node(Kind.TRUTH, lambda properties: None if properties.get(name) is None else False, depth=node.depth)


# ---------------------------------------------------------------------- logic


def negative(node: Node) -> Node:
    """``-node``; unknown except for numbers."""
    if node.fixed and isinstance(node.value, int | float) and node.kind in NUMBERS:
        value = -node.value
        return Node(node.kind, lambda _: value, fixed=True, value=value, depth=node.depth + 1)
    inner = node.evaluate

    def evaluate(properties: Properties) -> Value:
        inner(properties)
        return None

    return Node(Kind.NOTHING, evaluate, depth=node.depth + 1)


def opposite(node: Node) -> Node:
    """``NOT node``."""
    inner = truth(node).evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return Node(Kind.TRUTH, evaluate, depth=node.depth + 1)


def all_of(nodes: list[Node]) -> Node:
    """The parts joined by AND: evaluated in order up to the first false one."""
    return _joined(nodes, end=False)


def any_of(nodes: list[Node]) -> Node:
    """The parts joined by OR: evaluated in order up to the first true one."""
    return _joined(nodes, end=True)


def _joined(nodes: list[Node], *, end: bool) -> Node:
    parts = tuple(truth(node).evaluate for node in nodes)

    def evaluate(properties: Properties) -> Value:
        outcome: Value = not end
        for part in parts:
            value = part(properties)
            if value is end:
                return end
            if value is None:
                outcome = None
        return outcome

    return Node(Kind.TRUTH, evaluate, depth=1 + max(node.depth for node in nodes))


# ---------------------------------------------------------------------- comparing

Convert = Callable[[Any], Any]
Test = Callable[[Any, Any], bool]

ORDERS: dict[str, Test] = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def ordered(left: Node, sign: str, right: Node) -> Node:
    """``left`` above or below ``right``. Raises Invalid if one of them can never be a number."""
    for node in (left, right):
        if node.kind is Kind.TRUTH or (node.literal and node.kind not in NUMBERS):
            raise Invalid(f"only properties and numbers can be compared by {sign}")
    return _compared(left, right, ORDERS[sign], _double if left.kind is right.kind is Kind.TEXT else None)


def between(node: Node, low: Node, high: Node) -> Node:
    """``node`` from ``low`` to ``high``, both included. Raises Invalid, also for constants in the wrong order."""
    if low.literal and high.literal and low.kind in NUMBERS and high.kind in NUMBERS:
        on_low, on_high = _conversions(low.kind, high.kind)
        least: Any = on_low(low.value) if on_low else low.value
        greatest: Any = on_high(high.value) if on_high else high.value
        if least > greatest:
            raise Invalid(f"BETWEEN {low.value} AND {high.value} has its ends in the wrong order")
    return all_of([ordered(node, ">=", low), ordered(node, "<=", high)])


def not_between(node: Node, low: Node, high: Node) -> Node:
    """``node`` below ``low`` or above ``high``."""
    return any_of([ordered(node, "<", low), ordered(node, ">", high)])


def equal(left: Node, right: Node) -> Node:
    """``left = right``: unknown if only left is unknown, false if only right is. Raises Invalid for NULL."""
    for node in (left, right):
        if node.literal and node.kind is Kind.NOTHING:
            raise Invalid("NULL cannot be compared; write IS NULL or IS NOT NULL")
    if left.literal and right.literal and left.kind is Kind.TRUTH and right.kind is not Kind.TRUTH:
        raise Invalid("TRUE and FALSE cannot be compared with a number or a text")
    return _compared(left, right, operator.eq, None)


def unknown(node: Node) -> Node:
    """``node IS NULL``."""
    inner = node.evaluate
    return Node(Kind.TRUTH, lambda properties: inner(properties) is None, depth=node.depth + 1)


def _compared(left: Node, right: Node, test: Test, convert: Convert | None) -> Node:
    """Both sides converted to one type, then compared; ``convert`` converts texts, None leaves them unchanged."""
    pair = (convert, convert) if convert else _conversions(left.kind, right.kind)
    if left.name is not None and right.fixed and right.value is not None:
        fixed = right.value if pair[1] is None else pair[1](right.value)
        evaluate = _same(left.name, fixed) if pair[0] is None else _against(left.name, pair[0], test, fixed)
    else:
        sides = (left.evaluate, right.evaluate)
        evaluate = _equality(*sides, *pair) if test is operator.eq else _ordering(*sides, *pair, test)
    return Node(Kind.TRUTH, evaluate, depth=1 + max(left.depth, right.depth))


def _ordering(
    left: Evaluate, right: Evaluate, on_left: Convert | None, on_right: Convert | None, test: Test
) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        if other is None:
            return None
        return test(on_left(one) if on_left else one, on_right(other) if on_right else other)

    return evaluate


def _equality(left: Evaluate, right: Evaluate, on_left: Convert | None, on_right: Convert | None) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        one, other = left(properties), right(properties)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return bool((on_left(one) if on_left else one) == (on_right(other) if on_right else other))

    return evaluate


def _same(name: str, fixed: Value) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else value == fixed

    return evaluate


def _against(name: str, convert: Convert, test: Test, fixed: Any) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else test(convert(value), fixed)

    return evaluate


def _integer(text: str) -> int:
    try:
        return read_whole(text, INTEGER)
    except ValueError:
        raise NotComparable(f"'{text}' is not an Integer") from None


def _long(text: str) -> int:
    try:
        return read_whole(text, LONG)
    except ValueError:
        raise NotComparable(f"'{text}' is not a Long") from None


def _double(text: str) -> int:
    try:
        return double_order(read_double(text))
    except ValueError:
        raise NotComparable(f"'{text}' is not a Double") from None


def _true(text: str) -> bool:
    return text.lower() == "true"


def _refuse(_: Any) -> Any:
    raise NotComparable("truth cannot be compared with a text on its right")


def _order(value: float) -> int:
    return double_order(float(value))


def _apart(_: Any) -> Any:
    """A value of another type, which equals nothing."""
    return None


_FROM_TEXT: dict[Kind, Convert] = {
    Kind.INTEGER: _integer,
    Kind.LONG: _long,
    Kind.DOUBLE: _double,
    Kind.TRUTH: _true,
}


def _conversions(left: Kind, right: Kind) -> tuple[Convert | None, Convert | None]:
    """The conversions of both sides to a common type; None for values that need none."""
    if left is Kind.TRUTH and right is Kind.TEXT:
        return _refuse, None
    if left is Kind.TEXT and right in _FROM_TEXT:
        return _FROM_TEXT[right], _order if right is Kind.DOUBLE else None
    if right is Kind.TEXT and left in NUMBERS:
        return _order if left is Kind.DOUBLE else None, _FROM_TEXT[left]
    if Kind.DOUBLE in (left, right) and left in NUMBERS and right in NUMBERS:
        return _order, _order
    if Kind.TRUTH in (left, right) and left is not right:
        return _apart, None
    return None, None


# ---------------------------------------------------------------------- texts


def listed(node: Node, texts: Iterable[str], *, within: bool) -> Node:
    """``node IN (…)``, or NOT IN. Raises Invalid if ``node`` is not a property."""
    name = node.name
    if name is None:
        raise Invalid("IN is asked of a property only")
    wanted = frozenset(texts)

    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in wanted) is within

    return Node(Kind.TRUTH, evaluate)


PARTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def holds(node: Node, word: str, text: str, *, wanted: bool) -> Node:
    """``node CONTAINS 'text'`` and its like; false, never unknown, without a text or with an empty pattern."""
    test, inner = PARTS[word], node.evaluate
    if not text:
        return Node(Kind.TRUTH, lambda _: False)

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return isinstance(value, str) and test(value, text) is wanted

    return Node(Kind.TRUTH, evaluate, depth=node.depth + 1)
