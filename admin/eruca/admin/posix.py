"""Parse and explain a command line as Apache's mqadmin does.

Owns the rules of commons-cli 1.2 (PosixParser, HelpFormatter at width 110), which operators' scripts rely on: short
options may be joined with their value (``-tT``) or with one another, a long one takes ``--topic T`` or ``--topic=T``,
a token that begins with a dash but names no option is a value, and the first of several values counts. Must not know
any command. Raises UsageError for a command line that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eruca.admin.errors import UsageError
from eruca.admin.text import nearest

WIDTH = 110
INT32, INT64 = 2**31 - 1, 2**63 - 1
"""The largest numbers of Java's types ``int`` and ``long``."""
KINDS = ("topic", "group", "broker", "address", "cluster", "member", "time", "number", "boolean", "file", "place")
"""What values of options name: a broker's name is a ``broker``, its host:port an ``address``, and where a group or a
reader is to begin a ``place``."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: ``-letter`` or ``--name``; ``group`` names a set of which exactly one must be given.

    One that ``yields`` may be given beside another of its group, and does not count then. Options that Apache's
    mqadmin does not have may lack a letter. Raises ValueError for a kind that there is not.
    """

    letter: str
    name: str
    help: str
    takes_value: bool = True
    required: bool = False
    group: str = ""
    yields: bool = False
    added: bool = False
    """Whether Apache's mqadmin 4.9 lacks it; true of all without a letter."""
    kind: str = ""
    """What its value names, for completion and forms: one of ``KINDS``; "" for any text."""
    usual: str = ""
    """The value of an option that stands alone; "": it needs one."""
    choices: tuple[str, ...] = ()
    """All values that it takes, if these are few; of a number, those that are of use."""
    least: int = 0
    """The smallest number that it takes."""
    most: int = INT32
    """The largest one."""
    is_decimal: bool = False
    """Whether the number may have a fraction; what reads it judges it."""

    def __post_init__(self) -> None:
        if self.kind not in ("", *KINDS):
            raise ValueError(f"option {self} has the kind {self.kind}")

    @property
    def key(self) -> str:
        """What names the option's value: the letter, else the name."""
        return self.letter or self.name

    def __str__(self) -> str:
        return f"-{self.letter} (--{self.name.strip()})" if self.letter else f"--{self.name}"


@dataclass(frozen=True, slots=True)
class Operand:
    """What words without an option mean: the value of ``option``, one or (``many``) several with blanks between."""

    option: Option
    many: bool = False

    def __str__(self) -> str:
        shown = f"<{self.option.name}>{'...' if self.many else ''}"
        return shown if self.option.required else f"[{shown}]"


def parse(options: Sequence[Option], arguments: Iterable[str], operand: Operand | None = None) -> dict[str, str]:
    """The values by key; the value of an option that takes none is "". Raises UsageError."""
    known = {f"-{option.letter}": option for option in options if option.letter}
    known |= {f"--{option.name}": option for option in options}
    found: dict[str, str] = {}
    last = "-v"
    """The option whose value it may be that has blanks."""
    tokens = _flatten(known, arguments)
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        option = known.get(token)
        if option is None:
            if token.startswith("-") and len(token) > 1:
                raise UsageError(f"there is no option {token}{_like(token, options)}")
            if operand is not None and (operand.many or operand.option.key not in found):
                before = found.get(operand.option.key)
                found[operand.option.key] = token if before is None else f"{before} {token}"
                continue
            raise UsageError(f"'{token}' belongs to no option; put a value with blanks in quotes: {last} \"two words\"")
        value = ""
        if option.takes_value:
            last = token
            if at < len(tokens) and tokens[at] not in known:
                value = _unquoted(tokens[at])
                at += 1
            elif option.usual:
                value = option.usual
            else:
                raise UsageError(f"option {option} needs a value")
        if operand is not None and option is operand.option and option.key in found:
            raise UsageError(f"<{option.name}> is given twice: '{found[option.key]}' and '{value}'")
        found.setdefault(option.key, value)
    return found


def _like(token: str, options: Sequence[Option]) -> str:
    """The names that a wrong one is like; a single letter is like none."""
    if not token.startswith("--"):
        return ""
    return nearest(token.partition("=")[0], [f"--{option.name.strip()}" for option in options])


def split(options: Sequence[Option], arguments: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """The options that stand before the first word, by their names, and what follows. Raises UsageError."""
    known = {f"-{option.letter}": option for option in options if option.letter}
    known |= {f"--{option.name}": option for option in options}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and len(arguments[at]) > 1:
        last = known.get(next(reversed(_flatten(known, [arguments[at]])), ""))
        at += 2 if last is not None and last.takes_value else 1
    found = parse(options, arguments[:at])
    return {option.name: found[option.key] for option in options if option.key in found}, arguments[at:]


def check(options: Sequence[Option], found: dict[str, str], operand: Operand | None = None) -> None:
    """Raise UsageError when a required option is missing."""
    for option in options:
        if option.required and option.key not in found:
            if operand is not None and option is operand.option:
                raise UsageError(f"<{option.name}> is missing: give it as the first word, or with {option}")
            raise UsageError(f"option {option} is required")
        if option.key in ("t", "g") and option.takes_value and not found.get(option.key, "-").strip():
            raise UsageError(f"option {option} is empty")
    for group in dict.fromkeys(option.group for option in options if option.group):
        members = [option for option in options if option.group == group]
        given = [option for option in members if option.key in found and option not in overruled(options, found)]
        names = " and ".join(_spelled(option) for option in members)
        if len(given) != 1:
            raise UsageError(f"{names} exclude each other" if given else f"one of {names} is required")


def overruled(options: Sequence[Option], found: dict[str, str]) -> list[Option]:
    """The options that were given and do not count, because another of their group was given too."""
    counting = {option.group for option in options if option.group and not option.yields and option.key in found}
    return [option for option in options if option.yields and option.group in counting and option.key in found]


def _flatten(known: dict[str, Option], arguments: Iterable[str]) -> list[str]:
    tokens: list[str] = []
    rest = iter(arguments)
    for token in rest:
        if token == "--":
            break  # no options follow, and no command takes arguments
        if token.startswith("--"):
            name, equals, value = token.partition("=")
            tokens += [name, value] if equals and name in known else [token]
        elif token.startswith("-") and len(token) > 2 and token not in known:
            tokens += _burst(known, token)
        else:
            tokens.append(token)
    return tokens


def _burst(known: dict[str, Option], token: str) -> list[str]:
    """``-abT`` as ``-a -b T`` while its letters are options; else the whole token."""
    tokens: list[str] = []
    for at in range(1, len(token)):
        option = known.get(f"-{token[at]}")
        if option is None:
            return [*tokens, token]
        tokens.append(f"-{option.letter}")
        if option.takes_value and at + 1 < len(token):
            return [*tokens, token[at + 1 :]]
    return tokens


def _unquoted(text: str) -> str:
    return text.removeprefix('"').removesuffix('"')


def usage(program: str, options: Sequence[Option]) -> str:
    """The help of a command: the synopsis, a line for each option of Apache's, then those that it lacks."""
    ordered = sorted(options, key=lambda option: (not option.letter, option.key.lower()))
    old = [option for option in ordered if option.letter and not option.added]
    new = [option for option in ordered if option not in old]
    lines = [_wrapped(f"usage: {program} {_synopsis(old)}", 7), *_explained(old)]
    lines += ["", "Not in Apache's mqadmin 4.9:", *_explained(new)] if new else []
    return "\n".join(lines) + "\n"


def _explained(ordered: Sequence[Option]) -> list[str]:
    names = [_prefix(option) for option in ordered]
    width = max(map(len, names))
    return [
        _wrapped(f"{name:<{width}}   {option.help}", width + 3) for name, option in zip(names, ordered, strict=True)
    ]


def _synopsis(ordered: Sequence[Option]) -> str:
    parts: list[str] = []
    shown: set[str] = set()
    for option in ordered:
        if not option.group:
            parts.append(_form(option) if option.required else f"[{_form(option)}]")
        elif option.group in shown:
            parts.append("")
        else:
            shown.add(option.group)
            parts.append(" | ".join(_form(each) for each in ordered if each.group == option.group))
    return " ".join(parts)


def _form(option: Option) -> str:
    return _spelled(option) + (" <arg>" if option.takes_value else "")


def _spelled(option: Option) -> str:
    return f"-{option.letter}" if option.letter else f"--{option.name}"


def _prefix(option: Option) -> str:
    letter = f" -{option.letter}," if option.letter else "    "
    return f"{letter}--{option.name}" + (" <arg>" if option.takes_value else "")


def _wrapped(text: str, indent: int) -> str:
    lines: list[str] = []
    while len(text) > WIDTH:
        at = text.rfind(" ", 0, WIDTH + 1)
        if at <= (indent - 1 if lines else 0):
            at = WIDTH
        lines.append(text[:at].rstrip())
        text = " " * indent + text[at:].strip()
    return "\n".join([*lines, text.rstrip()])
