"""Settings by name: from a mapping, such as a table of a TOML file, or from variables of the environment.

Owns how variables become a mapping and how its texts become values of a dataclass's types, and the sentence about a
name that nobody knows. Knows no setting. Invariant: an error names a setting and never shows its value, which may be a
secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from eruca.client.errors import BadConfig

T = TypeVar("T")

FILE = "_FILE"
"""The end of a variable's name whose value is the path of a file with the value, as of secrets of Docker."""
CLOSE = 0.8
"""How similar an unknown variable must be to a known one to count as a misspelt one; others are somebody else's."""


def collected(
    environment: Mapping[str, str], prefix: str, names: Mapping[str, tuple[str, ...]], secrets: Collection[str]
) -> dict[str, Any]:
    """The values that variables with this prefix give, nested by the path of each name.

    Args:
        names: what follows the prefix, and the path of the setting.
        secrets: the names that may also come from a file, by a variable that ends with ``_FILE``.

    Raises BadConfig for a variable that is close to a known one but not it, and for a file that cannot be read.
    """
    known = {*names, *(f"{name}{FILE}" for name in secrets)}
    found: dict[str, Any] = {}
    for variable in sorted(environment):
        name = variable.removeprefix(prefix)
        if name == variable or not environment[variable].strip():
            continue
        if name not in known:
            close = nearest(name, known, CLOSE)
            if close is not None:
                raise BadConfig(f"the variable {variable} is not known: did you mean {prefix}{close}?")
            continue
        value = environment[variable].strip()
        if name not in names:
            name = name.removesuffix(FILE)
            if environment.get(prefix + name, "").strip():
                raise BadConfig(f"{variable} and {prefix}{name} are both set: leave one of them out")
            value = _content(variable, value)
        place = found
        *outer, last = names[name]
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return found


def _content(variable: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f'{variable}: the file "{path}" cannot be read: {error}') from None


def converted(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """A dataclass made of values by name; texts become numbers, flags and tuples where its types say so.

    ``where`` stands before a name in sentences. Raises BadConfig.
    """
    hints = get_type_hints(kind)
    check_names(values, hints, where)
    return kind(**{name: _converted(f"{where}{name}", value, hints[name]) for name, value in values.items()})


def _converted(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, str) and str in getattr(hint, "__args__", ()):
        return value  # a path may also be an object, which msgspec does not know
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:  # its sentences name types and bounds, no values
        raise BadConfig(f"{name} is not allowed: {str(error)[:1].lower()}{str(error)[1:]}") from None


def check_names(given: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Raise BadConfig, with the nearest known name, for a name that is not known."""
    names = list(known)
    for name in given:
        if name not in names:
            close = nearest(name, names)
            advice = f"did you mean {where}{close}?" if close else f"known are {', '.join(sorted(names))}"
            raise BadConfig(f"{where}{name} is not known: {advice}")


def nearest(name: object, known: Iterable[str], close: float = 0.6) -> str | None:
    """The known name that is most like this one; None where none is ``close``, from 0 to 1."""
    from difflib import get_close_matches  # dear to import, and for errors only

    return next(iter(get_close_matches(str(name), sorted(known), 1, close)), None)
