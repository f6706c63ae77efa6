"""The forms of results: for people (``table``, ``wide``), for programs (``json``, ``jsonl``, ``yaml``, ``csv``).

``Printer`` takes the results of one run, one after the other, and prints each in the form that was asked for; Apache's
form is the command's own. ``json`` and ``yaml`` print one document: the result of a command that has one, and a table
of all that a command gave one after the other. The other forms print a result when it comes. Peers that did not answer
are named on standard error, too, and make the exit status ``PARTIAL``. rich, PyYAML and csv are imported only for their
forms.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import inspect

from eruca.admin.command import BOLD, FORMS, YELLOW, Job, Shown, painted
from eruca.admin.errors import AdminError, BadValue, Status
from eruca.admin.results.answer import Answer, Moment, Table, indented
from eruca.admin.results.progress import Count, Lag
from eruca.admin.text import columns

VARIABLE = "MQADMIN_OUTPUT"
_FEW = 4
"""Entries of a map that stand side by side in a table."""


def checked(form: str, where: str, forms: Sequence[str] = FORMS) -> str:
    """A form that there is. Raises BadValue, which names ``where`` it was given."""
    if form not in forms:
        raise BadValue(f"{where} takes {', '.join(forms)}, not '{form}'")
    return form


def schema(kinds: Sequence[type[msgspec.Struct]]) -> str:
    """The JSON Schema of a result of one of these types."""
    several, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    head = several[0] if len(several) == 1 else {"anyOf": list(several)}
    text = msgspec.json.encode({**head, "$defs": parts})
    return msgspec.json.format(text, indent=2).decode()


class Printer:
    """Prints the results of one run.

    Args:
        form: one of ``FORMS``.
        several: whether the command gives its results one after the other.
    """

    def __init__(self, job: Job, form: str, *, several: bool = False) -> None:
        self._job = job
        self._form = form
        self._kept: list[msgspec.Struct] | None = [] if several and form in ("json", "yaml") else None
        self._begun = False
        self._head: type[msgspec.Struct] | None = None
        """The type of the rows below the last titles."""

    def print(self, shown: Shown) -> None:
        """Print a result, or keep it for the document at the end."""
        result = shown.result
        if self._form == "apache":
            shown.apache()
        elif self._form in shown.more:
            shown.more[self._form]()
        elif result is None:
            return
        elif self._kept is not None and not isinstance(result, Answer):
            self._kept.append(result)
        else:
            self._print(result)
        if isinstance(result, Answer):
            for each in result.errors:
                self._job.report(str(each), Status.PARTIAL)

    def end(self, *, failed: bool = False) -> None:
        """Print what was kept; a document without items is printed, too, unless the command ``failed``."""
        if self._kept is not None and not (self._begun or (failed and not self._kept)):
            self._print(Table(items=self._kept))

    def _print(self, result: msgspec.Struct) -> None:
        self._begun = True
        if self._form == "json":
            self._job.line(indented(result))
        elif self._form == "jsonl":
            for row in rows_of(result):
                self._job.line(msgspec.json.encode(row).decode())
        elif self._form == "yaml":
            self._job.write(_yaml(result))
        else:
            self._print_columns(result)

    def _print_columns(self, result: msgspec.Struct) -> None:
        row = _row_of(type(result))
        head, self._head = self._head is not row.cls, row.cls
        if self._form == "csv":
            self._job.write(_csv(row, rows_of(result), head=head))
        else:
            wide, colors = self._form == "wide", self._job.colors.out
            self._job.painted(_table(row, rows_of(result), head=head, wide=wide, colors=colors))


def rows_of(result: msgspec.Struct) -> list[msgspec.Struct]:
    """The items of a table; a single object is one row."""
    return list(result.items) if isinstance(result, Table) else [result]


def _yaml(result: msgspec.Struct) -> str:
    try:
        import yaml
    except ImportError:
        raise AdminError("YAML needs PyYAML: install eruca[console], or take -o json") from None
    text: str = yaml.safe_dump(msgspec.to_builtins(result, str_keys=True), sort_keys=False, allow_unicode=True)
    return text


def _row_of(kind: Any) -> inspect.StructType:
    """The type of the rows of a result: of a table's items, or of the object itself."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    if issubclass(info.cls, Table):
        items = next(field.type for field in info.fields if field.name == "items")
        assert isinstance(items, inspect.ListType) and isinstance(items.item_type, inspect.StructType)
        return items.item_type
    return info


def _fields(row: inspect.StructType, *, wide: bool) -> list[inspect.Field]:
    """The fields that a form shows; errors are printed elsewhere."""
    hidden = {"errors"} if issubclass(row.cls, Answer) else set()
    return [field for field in row.fields if field.name not in hidden and (wide or not _is_wide(field.type))]


def _is_wide(kind: inspect.Type) -> bool:
    return _is_marked(kind, "wide")


def _is_marked(kind: inspect.Type, mark: str) -> bool:
    return isinstance(kind, inspect.Metadata) and bool((kind.extra or {}).get(mark))


def _plain(kind: inspect.Type) -> inspect.Type:
    """A type without its metadata and without None."""
    if isinstance(kind, inspect.Metadata):
        return _plain(kind.type)
    if isinstance(kind, inspect.UnionType):
        others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return _plain(others[0]) if len(others) == 1 else kind
    return kind


# ------------------------------------------------------------------ csv


def _csv(row: inspect.StructType, rows: Sequence[msgspec.Struct], *, head: bool) -> str:
    """Objects in objects have dotted names; lists and maps are JSON; what nobody knows is empty."""
    import csv

    found = list(_columns(row))
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    if head:
        writer.writerow([name for name, _ in found])
    writer.writerows([_csv_cell(_at(each, path)) for _, path in found] for each in rows)
    return lines.getvalue()


def _columns(row: inspect.StructType) -> Iterator[tuple[str, tuple[str, ...]]]:
    for field in _fields(row, wide=True):
        kind = _plain(field.type)
        if isinstance(kind, inspect.StructType):
            for name, path in _columns(kind):
                yield f"{field.encode_name}.{name}", (field.name, *path)
        else:
            yield field.encode_name, (field.name,)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = None if value is None else getattr(value, name)
    return value


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value


# ------------------------------------------------------------------ tables for people


def _table(row: inspect.StructType, rows: Sequence[msgspec.Struct], *, head: bool, wide: bool, colors: bool) -> str:
    fields = _fields(row, wide=wide)
    lines_of = [line for each in rows for line in _lines(fields, each)]
    cells_of = [[_title(field.encode_name)] * head + [line[at] for line in lines_of] for at, field in enumerate(fields)]
    aligned = [
        _aligned(column, right=_is_figure(_plain(field.type))) for field, column in zip(fields, cells_of, strict=True)
    ]
    lines = [list(cells) for cells in zip(*aligned, strict=True)]
    if colors:
        lines = [[_painted(cell, BOLD if head and not at else "") for cell in line] for at, line in enumerate(lines)]
    return "".join("  ".join(line).rstrip() + "\n" for line in lines)


def _lines(fields: Sequence[inspect.Field], row: msgspec.Struct) -> list[list[str]]:
    """The cells of a row; one with many parts, such as the settings of a broker, has a line for each of them."""
    parts = [_parts(field, row) for field in fields]
    return [list(line) for line in zip_longest(*parts, fillvalue="")]


def _parts(field: inspect.Field, row: msgspec.Struct) -> list[str]:
    value = getattr(row, field.name)
    if isinstance(value, dict) and len(value) > _FEW:
        return [f"{_cell(key)}={_cell(each)}" for key, each in value.items()]
    if isinstance(value, list) and len(value) > 1 and isinstance(value[0], msgspec.Struct):
        return [_cell(each) for each in value]
    return [_cell_of(field, row)]


def _painted(cell: str, color: str) -> str:
    """A title in bold, what is not known in yellow."""
    text = cell.strip()
    return cell.replace(text, painted(text, color or (YELLOW if text.endswith("?") else ""))) if text else cell


def _aligned(column: list[str], *, right: bool) -> list[str]:
    """Cells of equal width, on a terminal on which a Chinese letter takes two columns."""
    from rich.cells import cell_len

    width = max(map(cell_len, column), default=0)
    blanks = [" " * (width - cell_len(cell)) for cell in column]
    return [blank + cell if right else cell + blank for blank, cell in zip(blanks, column, strict=True)]


def _has_words(kind: type[msgspec.Struct]) -> bool:
    """Whether a result says itself how it is written in one cell, as a lag does."""
    return "__str__" in kind.__dict__


def _is_figure(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.IntType | inspect.FloatType) or (
        isinstance(kind, inspect.StructType) and issubclass(kind.cls, Lag | Count)
    )


def _title(name: str) -> str:
    """``maxOffset`` as MAX OFFSET."""
    return re.sub("([a-z0-9])([A-Z])", r"\1 \2", name).upper()


def _cell_of(field: inspect.Field, row: msgspec.Struct) -> str:
    value = getattr(row, field.name)
    return "-" if value is None and _is_marked(field.type, "none") else _cell(value)


def _cell(value: Any) -> str:
    """A value for a person: ``?`` for what nobody knows."""
    if value is None:
        return "?"
    if isinstance(value, Moment):
        return value.iso.replace("T", " ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, dict):
        return ", ".join(f"{_cell(key)}={_cell(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    if isinstance(value, msgspec.Struct) and not _has_words(type(value)):
        fields = _fields(_row_of(type(value)), wide=False)
        return " ".join(f"{field.encode_name}={_cell_of(field, value)}" for field in fields)
    return columns("%s", str(value))
