"""The version of this installation."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The version of Eruca; "unknown" where it runs without being installed."""
    try:
        return installed("eruca")
    except PackageNotFoundError:
        return "unknown"
