"""The native step: what is done for every message in C, where that was compiled at the installation.

The same results as the Python of this package gives, byte for byte, at a fraction of its time; each function does the
ordinary cases and leaves the others to Python. Without it, or with ``ERUCA_PURE`` set in the environment, ``on`` is
False, and Python does all. The C is in the folder ``c``; how it is compiled, in ``hatch_build.py``.
"""

from __future__ import annotations

import os

try:
    from eruca.broker.store._native import batch, fetch, follow, keys, put_entries, sends, take

    on = not os.environ.get("ERUCA_PURE")
    """Whether it is used; looked at when a broker or a store begins to use it, and with every batch."""
except ImportError:
    on = False

__all__ = ["batch", "fetch", "follow", "keys", "on", "put_entries", "sends", "take"]
