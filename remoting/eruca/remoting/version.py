"""The version of this installation."""

from contextlib import suppress
from functools import cache

_DISTRIBUTIONS = ("eruca-client", "eruca")
"""What holds this module: the one that is published, or a checkout, which is installed as one."""


@cache
def version() -> str:
    """The version of Eruca; "unknown" where it runs without being installed."""
    from importlib.metadata import PackageNotFoundError  # dear to import, and asked for by few
    from importlib.metadata import version as installed

    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            return installed(name)
    return "unknown"
