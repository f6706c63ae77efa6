"""Forms: their fields are options of commands, with the name, the words, the bounds and the judgement of each.

Owns the way from an option to a field of a page, and from what was filled in to values that are right: ``values``
judges them, as it does for the commands. A field that is left empty is not given. What an option's help says behind a
semicolon is for command lines only. ``Console.commands`` has the commands, since they are a layer above.

No command has an option for what a person points at: ``confirm`` (the name of what is to be changed, typed; a command
asks at its terminal instead), ``brokers`` of a topic (some of those there are, where a command takes one or a whole
cluster), ``places`` and ``all`` of dead letters (which rows), and ``member`` of a message (a group and a client id,
which are two options, but one choice).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eruca.admin import values
from eruca.admin.command import Command
from eruca.admin.errors import BadValue
from eruca.admin.posix import Option
from eruca.admin.results.answer import Result

ON = "on"
"""What a browser sends for a switch that is on; one that is in an address without a value is on, too."""
Commands = Callable[[str], Command | None]
"""Gives the command of a name."""


class Field(Result, frozen=True, kw_only=True, rename="camel"):
    """A field of a form."""

    name: str
    text: str
    """What it means."""
    kind: str
    """What its value names, as in the declaration; ``switch`` for one that is on or off."""
    value: str
    """What is filled in."""
    required: bool
    choices: list[str]
    """All values that it may have, or those that are of use; none where it takes any."""
    known: list[str]
    """Values of this cluster that fit."""
    least: int | None
    """The bounds of a number."""
    most: int | None


@dataclass(frozen=True)
class Form:
    """Options of commands, by the names of both."""

    picks: tuple[tuple[str, str], ...]
    is_search: bool = False
    """Whether every field may be empty, as the options are of several commands."""

    def options(self, commands: Commands) -> dict[str, Option]:
        """Their declarations. Raises KeyError for what no command declares."""
        return {name: _declared(commands, command, name) for command, name in self.picks}

    def fields(
        self,
        commands: Commands,
        given: Mapping[str, str],
        *,
        usual: Mapping[str, str] | None = None,
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Field]:
        """The fields with what was given; with their ``usual`` values where they are not in the form."""
        options = self.options(commands)
        switches = {name: ON for name, each in options.items() if not each.takes_value and name in given}
        filled = {**(usual or {}), **given, **switches}
        return [
            _field(each, filled.get(name, ""), each.required and not self.is_search, (known or {}).get(name, ()))
            for name, each in options.items()
        ]

    def filled(self, commands: Commands, given: Mapping[str, str]) -> Filled:
        """What was filled in. Raises BadValue for a value that its option does not take, or one that is missing."""
        found = {}
        for name, option in self.options(commands).items():
            text = given.get(name, "")
            if not option.takes_value:
                if name in given:
                    found[name] = text
            elif text.strip():
                values.judge_one(option, name, text)
                found[name] = text
            elif option.required and not self.is_search:
                raise BadValue(f"the form lacks {name}: {_words(option)}")
        return Filled(found)


@dataclass(frozen=True)
class Filled:
    """What was filled in, by the names of options."""

    given: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Whether a field has a value, or a switch is on."""
        return name in self.given

    def text(self, name: str) -> str:
        """The value of a field without the blanks around it; empty where it has none."""
        return self.given.get(name, "").strip()

    def number(self, name: str, usual: int) -> int:
        """The value of a field as a whole number."""
        return int(self.text(name) or usual)


def form(command: str, *options: str) -> Form:
    """A form with these options of a command."""
    return Form(tuple((command, name) for name in options))


def search(*forms: Form) -> Form:
    """One form with the fields of several, of which any may be empty."""
    return Form(tuple(pick for each in forms for pick in each.picks), is_search=True)


def _declared(commands: Commands, command: str, name: str) -> Option:
    found = commands(command)
    if found is None:
        raise KeyError(command)
    return {_name(each): each for each in found.options}[name]


def _field(option: Option, value: str, required: bool, known: Sequence[str]) -> Field:
    is_number = option.kind == "number" and not option.is_decimal
    choices = ["true", "false"] if option.kind == "boolean" else [*option.choices]
    if choices and value and value not in choices:
        choices.append(value)
    return Field(
        name=_name(option),
        text=_words(option),
        kind=option.kind if option.takes_value else "switch",
        value=value,
        required=required,
        choices=choices,
        known=list(known),
        least=option.least if is_number else None,
        most=option.most if is_number else None,
    )


def _name(option: Option) -> str:
    return option.name.strip()  # some of Apache's end with a blank


def _words(option: Option) -> str:
    return option.help.partition(";")[0]
