"""Files that a person names: their whole content, if that is of a size that such files have.

Owns the bound. Must not know what a file is for. A name may be that of a pipe or a device, which has no size.
"""

from __future__ import annotations

from pathlib import Path

from eruca.admin.errors import AdminError

MOST = 64
"""MiB: hundreds of thousands of topics or offsets have less."""


def content(path: str) -> bytes:
    """What is in a file. Raises AdminError with its name."""
    most = MOST << 20
    try:
        with Path(path).open("rb") as file:
            found = file.read(most + 1)
    except OSError as error:
        raise AdminError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise AdminError(f"{path!r} names no file: a name has no NUL") from None
    if len(found) > most:
        raise AdminError(f"{path} has more than {MOST} MiB: name another file")
    return found
