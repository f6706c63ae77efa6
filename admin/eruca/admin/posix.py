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

WIDTH = 110


@dataclass(frozen=True, slots=True)
class Option:
    """One option: ``-letter`` or ``--name``; ``group`` names a set of which exactly one must be given."""

    letter: str
    name: str
    help: str
    takes_value: bool = True
    required: bool = False
    group: str = ""


def parse(options: Sequence[Option], arguments: Iterable[str]) -> dict[str, str]:
    """The values by letter; the value of an option that takes none is "". Raises UsageError."""
    known = {f"-{option.letter}": option for option in options} | {f"--{option.name}": option for option in options}
    found: dict[str, str] = {}
    tokens = _flatten(known, arguments)
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        option = known.get(token)
        if option is None:
            if token.startswith("-") and len(token) > 1:
                raise UsageError(f"there is no option {token}")
            continue
        value = ""
        if option.takes_value:
            if at == len(tokens) or tokens[at] in known:
                raise UsageError(f"option -{option.letter} (--{option.name.strip()}) needs a value")
            value = _unquoted(tokens[at])
            at += 1
        found.setdefault(option.letter, value)
    return found


def check(options: Sequence[Option], found: dict[str, str]) -> None:
    """Raise UsageError when a required option is missing."""
    for option in options:
        if option.required and option.letter not in found:
            raise UsageError(f"option -{option.letter} (--{option.name.strip()}) is required")
    for group in dict.fromkeys(option.group for option in options if option.group):
        members = [option for option in options if option.group == group]
        given = [option for option in members if option.letter in found]
        names = " and ".join(f"-{option.letter}" for option in members)
        if len(given) != 1:
            raise UsageError(f"{names} exclude each other" if given else f"one of {names} is required")


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
    """The help of a command: the synopsis, then a line for each option."""
    ordered = sorted(options, key=lambda option: option.letter.lower())
    lines = [_wrapped(f"usage: {program} {_synopsis(ordered)}", 7)]
    names = [_prefix(option) for option in ordered]
    width = max(map(len, names))
    lines += [
        _wrapped(f"{name:<{width}}   {option.help}", width + 3) for name, option in zip(names, ordered, strict=True)
    ]
    return "\n".join(lines) + "\n"


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
    return f"-{option.letter} <arg>" if option.takes_value else f"-{option.letter}"


def _prefix(option: Option) -> str:
    return f" -{option.letter},--{option.name}" + (" <arg>" if option.takes_value else "")


def _wrapped(text: str, indent: int) -> str:
    lines: list[str] = []
    while len(text) > WIDTH:
        at = text.rfind(" ", 0, WIDTH + 1)
        if at <= (indent - 1 if lines else 0):
            at = WIDTH
        lines.append(text[:at].rstrip())
        text = " " * indent + text[at:].strip()
    return "\n".join([*lines, text.rstrip()])
