"""The native step: the work that is done for every message, in C where that was compiled at the installation.

Chooses once, for all callers, between ``_native`` (C, folder ``c``, compiled by ``hatch_build.py``) and ``pure`` (the
same functions in Python). With ``ERUCA_PURE`` in the environment it chooses ``pure``.
"""

from __future__ import annotations

import os

from eruca.broker.store import pure
from eruca.broker.store.layout import LAYOUTS

try:
    from eruca.broker.store import _native
except ImportError:
    compiled, absent = False, True
else:
    absent = False
    sends = _native.sends
    compiled = not os.environ.get("ERUCA_PURE")
    if _native.LAYOUTS != LAYOUTS:
        raise ImportError("the native step was compiled from other sources: run hatch_build.py again")

on = compiled
"""Whether the functions in C are used. ``absent``: they cannot be, as nothing was compiled at the installation."""

batch = pure.batch
commits = pure.commits
fetch = pure.fetch
follow = pure.follow
keys = pure.keys
put_entries = pure.put_entries
take = pure.take


def use(*, c: bool) -> None:
    """Take the functions in C, or those in Python. Called once at the start; tests compare both."""
    global on, batch, commits, fetch, follow, keys, put_entries, take
    step = _native if c else pure
    on = c
    batch, commits, fetch, take = step.batch, step.commits, step.fetch, step.take
    follow, keys, put_entries = step.follow, step.keys, step.put_entries


use(c=compiled)
