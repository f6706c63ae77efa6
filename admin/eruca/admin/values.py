"""The values of options: what is no value of its option is refused before a command asks anybody or changes anything.

Owns the rule of each kind of option (``posix.Option``). Pure. A value that only a cluster can judge, such as a name, is
none of this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from eruca.admin.client import check_address
from eruca.admin.errors import BadValue
from eruca.admin.posix import Operand, Option
from eruca.admin.text import GROUP_OF, point_of_time

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_PLACE = re.compile(rf"first|last|{GROUP_OF}.+|[+-]?\d{{1,18}}|.*/.*|.*\.(json|txt)", re.DOTALL)
"""The places that are no time: ``resets.places`` has their meaning."""


def judge(options: Sequence[Option], given: Mapping[str, str], operand: Operand | None = None) -> None:
    """Raise BadValue for the first value that its option does not take. Times are read in the zone of ``in_zone``."""
    for option in options:
        if option.takes_value and option.key in given:
            is_operand = operand is not None and option is operand.option
            judge_one(option, f"<{option.name}>" if is_operand else f"option {option}", given[option.key])


def judge_one(option: Option, named: str, value: str) -> None:
    """Raise BadValue for a value that an option does not take; ``named`` is how the sentence calls it."""
    text = value.strip()
    if option.kind == "number" and not option.is_decimal:
        _judge_number(option, named, text)
    elif option.kind == "boolean" and text.lower() not in ("true", "false"):
        raise BadValue(f"{named} takes true or false, not '{text}'")
    elif option.kind == "address":
        check_address(text, named)
    elif option.kind == "time":
        point_of_time(text)
    elif option.kind == "place" and not _PLACE.fullmatch(text):
        _judge_place(option, named, text)
    elif option.choices and not option.kind and text not in option.choices:
        raise BadValue(f"{named} takes {', '.join(option.choices)}, not '{text}'")


def _judge_place(option: Option, named: str, text: str) -> None:
    try:
        point_of_time(text)
    except BadValue as error:
        raise BadValue(f"{named} takes {option.help.partition(';')[0]}; {error}") from None


def _judge_number(option: Option, named: str, text: str) -> None:
    if not _WHOLE.fullmatch(text):
        raise BadValue(f"{named} takes a whole number, not '{text}'")
    if int(text) < option.least:
        raise BadValue(f"{named} takes a whole number, {option.least} or more, not {text}")
    if int(text) > option.most:
        raise BadValue(f"{named} takes a whole number, {option.most} or less, not {text}")
