"""The public surface: which names the classes have that users import. An addition is one line in the golden file.

To write the file again: ``UPDATE_GOLDEN=1 pytest tests/client/test_surface.py``; look at the difference.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import eruca.client
from eruca.client import sync

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "client_surface.txt"


def public_classes() -> Iterator[tuple[str, type]]:
    for module, prefix in ((eruca.client, ""), (sync, "sync.")):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("eruca.client") and not _is_error(value):
                yield prefix + name, value


def _is_error(kind: type) -> bool:
    return issubclass(kind, BaseException)


def names_of(kind: type) -> list[str]:
    """What completion offers of an instance: of the class, and of fields that its constructor sets."""
    return sorted(name for name in dir(kind) if not name.startswith("_"))


def test_public_classes_have_the_names_that_are_listed_and_no_others() -> None:
    surface = "".join(f"{name}: {' '.join(names_of(kind))}\n" for name, kind in sorted(public_classes()))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(surface)
    assert surface.splitlines() == GOLDEN.read_text().splitlines()


def test_started_and_unstarted_clients_have_no_public_attributes_beyond_their_class() -> None:
    """What a constructor sets is private, or named here."""
    wanted = {"group", "broadcast"}
    for client in (
        eruca.client.PushConsumer("g", nameserver="n:1"),
        eruca.client.LitePullConsumer("g", nameserver="n:1"),
    ):
        given = {name for name in vars(client) if not name.startswith("_")}
        assert given <= wanted, type(client).__name__
