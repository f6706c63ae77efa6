"""Windows and macOS: no module uses what one of them lacks, unless it has asked before."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import parsed, product_modules
from tests.support.other_systems import MODULES_OF_UNIX, NOT_PROACTOR, SYSTEMS, WITH_DIFFERENCES, lacking, names_on

NOT_FOR_THEM = ("spark_connector/", "standalone/eruca/standalone/demo/")
"""Spark, and the demonstration, which runs it."""
METHODS = {*NOT_PROACTOR, "remove_reader", "remove_writer", "remove_signal_handler", "madvise"}
ASKS = ("hasattr(", "sys.platform", "os.name")
ERRORS = {"AttributeError", "ImportError", "ModuleNotFoundError", "NotImplementedError"}


def modules() -> list[Path]:
    return [file for file in product_modules() if not file.as_posix().startswith(NOT_FOR_THEM)]


def uses(tree: ast.Module) -> list[str]:
    """The lines of a module that use what a system lacks without having asked."""
    return [f"{line}: {name}" for line, name in _in_body(tree.body)]


def _in_body(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """The uses in statements that follow one another: one that asks and leaves answers for those after it."""
    for each in body:
        yield from _in_node(each)
        if isinstance(each, ast.If) and _asks(each.test) and isinstance(each.body[-1], ast.Return | ast.Raise):
            return


def _in_node(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.If | ast.IfExp) and _asks(node.test):
        return
    if isinstance(node, ast.Try) and any(_catches(each.type) for each in node.handlers):
        for each in (*node.handlers, *node.orelse, *node.finalbody):
            yield from _in_node(each)
        return
    if isinstance(node, ast.With) and any(_suppresses(each.context_expr) for each in node.items):
        return
    yield from _in_itself(node)
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield from _in_body(value)
        else:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _in_node(child)


def _in_itself(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import(names):
            for alias in names:
                if alias.name in MODULES_OF_UNIX or alias.name == "uvloop":
                    yield node.lineno, alias.name
        case ast.ImportFrom(module=str(module), names=names):
            if module in MODULES_OF_UNIX:
                yield node.lineno, module
            elif module in WITH_DIFFERENCES:
                for alias in names:
                    if alias.name in lacking(module, *SYSTEMS):
                        yield node.lineno, f"{module}.{alias.name}"
        case ast.Attribute(ast.Name(module), name) if module in WITH_DIFFERENCES:
            if name in lacking(module, *SYSTEMS):
                yield node.lineno, f"{module}.{name}"
        case ast.Call(ast.Attribute(_, name)) if name in METHODS:
            yield node.lineno, name


def _asks(test: ast.expr) -> bool:
    return any(word in ast.unparse(test) for word in ASKS)


def _catches(kind: ast.expr | None) -> bool:
    return kind is not None and bool(ERRORS & {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)})


def _suppresses(context: ast.expr) -> bool:
    return ast.unparse(context).startswith("contextlib.suppress(") and _catches(context)


@pytest.mark.usefixtures("trees")
def test_what_a_system_lacks_is_asked_for_first() -> None:
    found = [f"{file}:{use}" for file in modules() for use in uses(parsed(file))]

    assert not found, "Windows or macOS lacks it: ask with hasattr, or use remoting/operating_system"


def test_the_stubs_know_what_windows_lacks() -> None:
    assert {"fork", "register_at_fork", "pread", "posix_fallocate", "O_CLOEXEC"} <= lacking("os", "win32")
    assert {"SIGHUP", "SIGUSR1", "SIGQUIT", "SIGKILL"} <= lacking("signal", "win32")
    assert {"posix_fallocate", "fdatasync", "sched_getaffinity"} <= lacking("os", "darwin")
    assert "AF_UNIX" in lacking("socket", "win32")
    assert not names_on("fcntl", "win32") and names_on("fcntl", "darwin")
    assert not {"open", "replace", "fsync"} & lacking("os", *SYSTEMS)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.fork()",
        "import fcntl",
        "from signal import SIGHUP",
        "def f(loop):\n    loop.add_reader(1, f)",
        "import os\ndef f():\n    if hasattr(os, 'fork'):\n        print()\n    os.fork()",
    ],
)
def test_a_use_is_found(text: str) -> None:
    assert len(uses(ast.parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import os\nif hasattr(os, 'fork'):\n    os.fork()",
        "import os\nx = os.fork() if hasattr(os, 'fork') else 0",
        "import os\ndef f():\n    if not hasattr(os, 'fork'):\n        return\n    os.fork()",
        "try:\n    import fcntl\nexcept ImportError:\n    pass",
        "def f(loop):\n    try:\n        loop.add_reader(1, f)\n    except NotImplementedError:\n        pass",
    ],
)
def test_a_use_that_asks_is_none(text: str) -> None:
    assert not uses(ast.parse(text))
