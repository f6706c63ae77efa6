"""SQL92 filter expressions: compiled once, then evaluated on each message's properties.

Owns the grammar and the limits (``SelectorParser.jj`` in 5.3.3, which has 4.9.7's and CONTAINS, STARTSWITH and
ENDSWITH); ``sql92_nodes`` has the meaning of the parts. Must not know messages, brokers or clients. Invariant: every
text gives an ``Expression`` or an ``Sql92Error``, and both compiling and evaluating are bounded by the limits.

As in RocketMQ, parsing ends with the first complete condition: what follows is ignored, unless it is a syntax error.
``compile_whole`` is for who writes an expression: it refuses one of which a part is ignored, such as ``a LIKE 'x%'``.
Where a property is expected, CONTAINS, STARTSWITH and ENDSWITH are names of properties, as in 4.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn, ParamSpec

from eruca.protocol import sql92_nodes as nodes
from eruca.protocol.sql92_nodes import Evaluate, Kind, Node, NotComparable, Properties

__all__ = [
    "MAX_DEPTH",
    "MAX_LENGTH",
    "MAX_PARTS",
    "Expression",
    "NotComparable",
    "Sql92Error",
    "compile_sql",
    "compile_whole",
]

MAX_LENGTH = 32_768
"""The most characters of an expression."""
MAX_PARTS = 2048
"""The most properties and constants of an expression; the list of IN is not counted."""
MAX_DEPTH = 48
"""The deepest nesting of brackets, NOT, signs and comparisons; chains of AND and OR do not nest."""

P = ParamSpec("P")

_CACHED = 256
_SHOWN = 120

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    |(?P<number>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+
        |0|[1-9][0-9]*[lL]?)
    |(?P<text>'(?:''|[^'])*')
    |(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<sign><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE,
)
_PARTS = frozenset(nodes.PARTS)
_RESERVED = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")) | _PARTS
_LITERALS = {
    "TRUE": nodes.constant(Kind.TRUTH, True),
    "FALSE": nodes.constant(Kind.TRUTH, False),
    "NULL": nodes.constant(Kind.NOTHING, None),
}
_COMPARING = _PARTS | nodes.ORDERS.keys() | {"NOT", "BETWEEN", "IN"}
_END = "the end"
_INSTEAD = "join conditions by AND or OR; for LIKE there are STARTSWITH, ENDSWITH and CONTAINS"


class Sql92Error(ValueError):
    """A text is not an SQL92 expression; the message names the error and its position."""


class Expression:
    """A compiled expression; ``text`` is its source, ``parts`` the number of its properties and constants.

    ``end`` is where in the source the condition ends: what follows is ignored.
    """

    __slots__ = ("_evaluate", "end", "parts", "text")

    def __init__(self, text: str, evaluate: Evaluate, parts: int, end: int) -> None:
        self.text = text
        self.parts = parts
        self.end = end
        self._evaluate = evaluate

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, properties: Properties) -> bool | None:
        """True, False, or None if it depends on unknown properties. Raises NotComparable."""
        value = self._evaluate(properties)
        return value if isinstance(value, bool) else None

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties matches; one that cannot be evaluated does not."""
        try:
            return self._evaluate(properties) is True
        except NotComparable:
            return False


def compile_sql(text: str) -> Expression:
    """The expression of ``text``, cached. Raises Sql92Error."""
    found = _compiled(text) if len(text) <= MAX_LENGTH else _too_long(text)
    if isinstance(found, Expression):
        return found
    raise Sql92Error(found)


def compile_whole(text: str) -> Expression:
    """As ``compile_sql``; raises Sql92Error for a text of which a part would be ignored, too."""
    expression = compile_sql(text)
    rest = text[expression.end :]
    if rest and not rest.startswith("--"):  # a comment that no new line ends
        raise Sql92Error(_wrong(text, expression.end + 1, f"brokers ignore {_cut(rest)!r}; {_INSTEAD}"))
    return expression


def _wrong(text: str, position: int, reason: str) -> str:
    return f"The SQL92 expression '{_cut(text)}' is wrong at position {position}: {reason}."


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _too_long(text: str) -> str:
    return f"The SQL92 expression has {len(text)} characters; at most {MAX_LENGTH} are allowed."


@lru_cache(maxsize=_CACHED)
def _compiled(text: str) -> Expression | str:
    """The expression, or its error."""
    try:
        reader = _Reader(text)
        return Expression(text, reader.whole().evaluate, reader.parts, reader.end)
    except _Fault as fault:
        return _wrong(text, fault.position, str(fault))


class _Fault(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        """Counted from 1."""


class _Reader:
    """Reads one expression, one token ahead.

    ``token`` is a sign, a reserved word in capitals, or the kind of anything else: ``number``, ``text``, ``name``.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self._start = 0
        self._depth = 0
        self.parts = 0
        self._token = ""
        self._raw = ""
        self._advance()

    # ------------------------------------------------------------------ tokens

    def _advance(self) -> None:
        while True:
            self._start = self._next
            if self._start == len(self._text):
                self._token = self._raw = _END
                return
            found = _TOKEN.match(self._text, self._start)
            if found is None:
                self._unreadable()
            self._next = found.end()
            if found.lastgroup != "blank":
                break
        self._raw = found[0]
        self._token = self._raw if found.lastgroup == "sign" else found.lastgroup or ""
        if self._token == "word":
            word = self._raw.upper()
            self._token = word if word in _RESERVED else "name"

    def _unreadable(self) -> NoReturn:
        char = self._text[self._start]
        if char == "'":
            raise _Fault(self._start + 1, "this text has no closing '")
        raise _Fault(self._start + 1, f"{char!r} has no meaning here")

    def _take(self, token: str, meaning: str) -> str:
        if self._token != token:
            self._expected(meaning)
        raw = self._raw
        self._advance()
        return raw

    def _takes(self, token: str) -> bool:
        """Step over the token if it is the next."""
        if self._token != token:
            return False
        self._advance()
        return True

    def _expected(self, meaning: str) -> NoReturn:
        found = self._raw if self._token == _END or len(self._raw) > _SHOWN else f"'{self._raw}'"
        raise _Fault(self._start + 1, f"{meaning} is expected, not {found[:_SHOWN]}")

    def _make(self, position: int, make: Callable[P, Node], *args: P.args, **kwargs: P.kwargs) -> Node:
        """The node that ``make`` returns; turns Invalid into Sql92Error."""
        try:
            node = make(*args, **kwargs)
        except nodes.Invalid as invalid:
            raise _Fault(position + 1, str(invalid)) from None
        if node.depth > MAX_DEPTH:
            raise _Fault(position + 1, f"it is nested more than {MAX_DEPTH} deep")
        return node

    @property
    def end(self) -> int:
        """Where what has been read ends."""
        return self._start

    # ------------------------------------------------------------------ grammar

    def whole(self) -> Node:
        """Parse the condition at the beginning of the text."""
        start = self._start
        node = self._any()
        return self._make(start, nodes.truth, node)

    def _any(self) -> Node:
        return self._chain("OR", self._all, nodes.any_of)

    def _all(self) -> Node:
        return self._chain("AND", self._equality, nodes.all_of)

    def _chain(self, word: str, part: Callable[[], Node], join: Callable[[list[Node]], Node]) -> Node:
        start = self._start
        found = [part()]
        while self._takes(word):
            found.append(part())
        return found[0] if len(found) == 1 else self._make(start, join, found)

    def _equality(self) -> Node:
        node = self._comparison()
        while self._token in ("=", "<>", "IS"):
            sign, start = self._token, self._start
            self._advance()
            if sign == "IS":
                negated = self._takes("NOT")
                self._take("NULL", "NULL")
                node = self._make(start, nodes.unknown, node)
                node = nodes.opposite(node) if negated else node
            else:
                right = self._comparison()
                node = self._make(start, nodes.equal, node, right)
                node = nodes.opposite(node) if sign == "<>" else node
        return node

    def _comparison(self) -> Node:
        node = self._unary()
        while self._token in _COMPARING:
            start = self._start
            wanted = not self._takes("NOT")
            sign = self._token
            if sign in nodes.ORDERS and wanted:
                self._advance()
                right = self._unary()
                node = self._make(start, nodes.ordered, node, sign, right)
            elif sign in _PARTS:
                self._advance()
                text = self._string()
                node = self._make(start, nodes.holds, node, sign, text, wanted=wanted)
            elif sign == "BETWEEN":
                self._advance()
                low = self._unary()
                self._take("AND", "AND")
                high = self._unary()
                join = nodes.between if wanted else nodes.not_between
                node = self._make(start, join, node, low, high)
            elif sign == "IN":
                self._advance()
                texts = self._strings()
                node = self._make(start, nodes.listed, node, texts, within=wanted)
            else:
                self._expected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        return node

    def _unary(self) -> Node:
        start = self._start
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Fault(start + 1, f"it is nested more than {MAX_DEPTH} deep")
        if self._takes("+"):
            node = self._unary()
        elif self._takes("-"):
            node = nodes.negative(self._unary())
        elif self._takes("NOT"):
            inner = self._unary()
            node = self._make(start, nodes.opposite, inner)
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> Node:
        start, raw = self._start, self._raw
        if self._takes("("):
            node = self._any()
            self._take(")", "a closing bracket")
            return node
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise _Fault(start + 1, f"it has more than {MAX_PARTS} properties and constants")
        if self._token == "text":
            return nodes.constant(Kind.TEXT, self._string())
        if self._takes("number"):
            return self._make(start, nodes.number, raw)
        if self._token in _LITERALS:
            node = _LITERALS[self._token]
            self._advance()
            return node
        if self._token in _PARTS or self._token == "name":
            self._advance()
            return nodes.property_of(raw)
        self._expected("a property or a constant")

    def _string(self) -> str:
        return self._take("text", "a text in single quotes")[1:-1].replace("''", "'")

    def _strings(self) -> list[str]:
        self._take("(", "an opening bracket")
        texts = [self._string()]
        while self._takes(","):
            texts.append(self._string())
        self._take(")", "a closing bracket")
        return texts
