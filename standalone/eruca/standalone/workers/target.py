"""The application that ``eruca run`` names: ``module:app``, loaded and run in this process.

Owns what such a name means, and how a worker learns that its supervisor is gone.
"""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eruca.client import App
from eruca.client.environment import nearest

EXPECTED = "an App is expected, or a function that returns one"


class BadTarget(Exception):
    """No application can be had by this name; the text says why."""


def load(name: str, folder: Path) -> App:
    """The application ``module:attribute``, or what a function of that name returns; modules are also in ``folder``.

    Raises BadTarget; what the module itself raises goes through, but for the module itself not being there.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise BadTarget(f'"{name}" is no application: "module:app" is expected, such as orders:app')
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise BadTarget(f'there is no module "{error.name}" in {folder} and on the path of Python') from None
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            close = nearest(part, vars(module))
            advice = f": did you mean {module_name}:{close}?" if close else ""
            raise BadTarget(f'the module {module_name} has no "{path}"{advice}') from None
    if not isinstance(found, App) and callable(found):
        found = _made_by(name, found)
    if not isinstance(found, App):
        raise BadTarget(f"{name} is of type {type(found).__name__}: {EXPECTED}")
    return found


def _made_by(name: str, function: Callable[..., Any]) -> Any:
    """What a function returns. Raises BadTarget for one that takes arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise BadTarget(f"{name} cannot be called without arguments ({error}): {EXPECTED}") from None
    except ValueError:  # some built-in ones have no signature
        raise BadTarget(f"{name} is of type {type(function).__name__}: {EXPECTED}") from None
    return function()


def end_with(supervisor: int) -> None:
    """Ask this process to stop in order as soon as the pipe from its supervisor ends; given is the descriptor."""

    def watch() -> None:
        while os.read(supervisor, 4096):  # no buffered file: the thread would hold its lock at the end of the process
            pass
        signal.raise_signal(signal.SIGINT if sys.platform == "win32" else signal.SIGTERM)

    threading.Thread(target=watch, name="eruca-supervisor-watch", daemon=True).start()
