"""Replaces fastjson's references ``{"$ref":"..."}`` by their values.

Owns the path language of ``$ref`` (``$``, ``$.name[0]``, ``..``, ``@``).  Must not know
the grammar of the text.

Invariant: the result is a finite tree.  A reference to an enclosing value (``$``, ``..``,
``@`` or a path to one) would close a cycle and reads as None, as does one that leads
nowhere or to a value that holds references itself; the total of what references repeat is
bounded.
"""

import re
from typing import Any, NamedTuple

from eruca.protocol.errors import ProtocolError

MAX_REPEATED = 100_000
"""The most values that all references of a text may repeat together."""

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(\d{1,9})\]", re.S)


class Reference(NamedTuple):
    """One ``{"$ref": target}`` of a text, and its path."""

    holder: dict[str, Any]
    path: tuple[str | int, ...]
    target: str


def resolve(root: Any, references: list[Reference]) -> Any:
    """Replace every reference in ``root`` and return the new root.

    Raises ProtocolError if the references repeat more than MAX_REPEATED values.
    """
    if any(not found.path for found in references):
        return None
    holders = {id(found.holder) for found in references}
    budget = MAX_REPEATED
    values: list[Any] = []
    for found in references:
        steps = _steps(found.target)
        value = None
        if steps and found.path[: len(steps)] != steps:
            value = _walk(root, steps)
        size = _size(value, holders, budget)
        budget -= size
        values.append(value if size else None)
    for found, value in zip(references, values, strict=True):
        # A later member of the same name may have taken the reference's place.
        if _walk(root, found.path) is found.holder:
            _walk(root, found.path[:-1])[found.path[-1]] = value
    return root


def _steps(target: str) -> tuple[str | int, ...]:
    """The steps of an absolute path; none for ``$``, ``..``, ``@`` and other texts."""
    if not target.startswith("$"):
        return ()
    steps: list[str | int] = []
    at = 1
    while at < len(target):
        found = _STEP.match(target, at)
        if found is None:
            return ()
        name, index = found.groups()
        steps.append(re.sub(r"\\(.)", r"\1", name) if name is not None else int(index))
        at = found.end()
    return tuple(steps)


def _walk(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _size(value: Any, holders: set[int], budget: int) -> int:
    """The number of values in ``value``; 0 if it contains a reference."""
    pending = [value]
    count = 0
    while pending:
        node = pending.pop()
        count += 1
        if count > budget:
            raise ProtocolError(f"$ref repeats more than {MAX_REPEATED} values")
        if id(node) in holders:
            return 0
        if isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return count
