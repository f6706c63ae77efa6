"""Other operating systems, as far as one can be had on Linux: what their Python lacks, and a process without it.

What a module has on a system stands in typeshed's stubs, which mypy brings. ``python -m tests.support.other_systems
win32 MODULE ARGUMENTS`` runs a module of Eruca so that Eruca's modules meet only the names that this system has,
without uvloop, and on an event loop that can do what the ProactorEventLoop can. The standard library keeps all its
names.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import importlib.util
import mmap
import runpy
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import mypy

STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
SYSTEMS = ("win32", "darwin")
WITH_DIFFERENCES = ("asyncio", "errno", "faulthandler", "mmap", "os", "select", "signal", "socket", "sys", "time")
MODULES_OF_UNIX = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
NOT_PROACTOR = ("add_reader", "add_writer", "add_signal_handler", "create_unix_connection", "create_unix_server")
"""What its event loop does not do: https://docs.python.org/3/library/asyncio-platforms.html#windows."""


@cache
def names_on(module: str, system: str) -> frozenset[str]:
    """The names of a module of the standard library on a system; none if it lacks the module."""
    stub = STUBS / f"{module}.pyi"
    tree = ast.parse((stub if stub.exists() else STUBS / module / "__init__.pyi").read_text())
    return frozenset(_names(tree.body, SimpleNamespace(platform=system, version_info=sys.version_info)))


def _names(body: list[ast.stmt], system: SimpleNamespace) -> list[str]:
    found: list[str] = []
    for each in body:
        match each:
            case ast.If(test, then, otherwise):
                known = {"sys": system, "TYPE_CHECKING": True}
                found += _names(
                    then if eval(compile(ast.Expression(test), "stub", "eval"), known) else otherwise, system
                )
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                found.append(name)
            case ast.Assign(targets):
                found += [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(ast.Name(name)):
                found.append(name)
            case ast.ImportFrom(names=names):
                found += [alias.asname for alias in names if alias.asname]  # the others are not exported
    return found


@cache
def lacking(module: str, *systems: str) -> frozenset[str]:
    """The names of a module that Linux has, and one of the systems lacks."""
    there = frozenset.intersection(*(names_on(module, system) for system in systems))
    return names_on(module, "linux") - there


class View(ModuleType):
    """A module without some of its names."""

    def __init__(self, module: ModuleType, hidden: frozenset[str]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update({name: value for name, value in vars(module).items() if name not in hidden})


class PlainMap(mmap.mmap):
    """A mapping as on a system without madvise(2)."""

    @property
    def madvise(self) -> NoReturn:
        raise AttributeError("madvise")


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise NotImplementedError


ProactorLike = type("ProactorLike", (asyncio.SelectorEventLoop,), dict.fromkeys(NOT_PROACTOR, _refuse))


class Policy(asyncio.DefaultEventLoopPolicy):
    """Every new event loop is one of these."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Another loop."""
        loop: asyncio.AbstractEventLoop = ProactorLike()
        return loop


def become(system: str) -> None:
    """Let Eruca's modules, none of which may be there yet, meet only what the system has, and no uvloop."""
    assert not any(name.startswith("eruca.") for name in sys.modules), "Eruca was imported before"
    views = {name: View(importlib.import_module(name), lacking(name, system)) for name in WITH_DIFFERENCES}
    absent = {"uvloop", *(name for name in MODULES_OF_UNIX if not names_on(name, system))}
    if system == "win32":
        views["mmap"].__dict__["mmap"] = PlainMap
        asyncio.set_event_loop_policy(Policy())
    importing, finding = builtins.__import__, importlib.util.find_spec

    def limited(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if globals is not None and str(globals.get("__package__", "")).startswith("eruca."):
            if name in absent:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in views:
                return views[name]
        return importing(name, globals, locals, fromlist, level)

    builtins.__import__ = limited
    importlib.util.find_spec = lambda name, package=None: None if name in absent else finding(name, package)


def main() -> None:
    """Become the system, then run a module as a program."""
    system, module, *arguments = sys.argv[1:]
    sys.argv[:] = [module, *arguments]
    become(system)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
