"""The version of this installation."""

from functools import cache


@cache
def version() -> str:
    """The version of Eruca; "unknown" where it runs without being installed."""
    from importlib.metadata import PackageNotFoundError  # dear to import, and asked for by few
    from importlib.metadata import version as installed

    try:
        return installed("eruca")
    except PackageNotFoundError:
        return "unknown"
