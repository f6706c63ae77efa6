"""The commands, a module for those about one thing; ``eruca.admin.catalogue`` says which module declares which.

A run of mqadmin needs one command: ``find`` imports the module that declares it, and ``every`` imports them all.
"""

from __future__ import annotations

from importlib import import_module

from eruca.admin.catalogue import module_of, names
from eruca.admin.command import COMMANDS, Command


def find(name: str) -> Command | None:
    """The command of that name, in whatever case; None if there is none."""
    module = module_of(name)
    if module is None:
        return None
    import_module(f"{__name__}.{module}")
    return COMMANDS[name.lower()]


def every() -> list[Command]:
    """All commands, in the order of help."""
    return [found for name in names() if (found := find(name)) is not None]
