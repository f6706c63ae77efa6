"""Atomic replacement of a small file: a crash leaves the old content or the new one. The check of its folder.

Owns the order of steps: write a temporary file, fsync, keep the old content as ``.bak`` (the first content is copied),
rename, fsync the directory. Must not know the content. Invariant: at any time ``path`` or its ``.bak`` holds complete
content, and no damage to one file affects the other.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from eruca.remoting.descriptors import reason
from eruca.remoting.operating_system import flush_folder


class NoAccess(Exception):
    """A file or folder may not be used, or its disk fails; the message says what to do."""

    def __init__(self, path: Path, how: str, fault: OSError) -> None:
        super().__init__(
            f"{path} cannot be {how} ({fault.strerror}): let the user of this process read and write it, then start "
            "again. Nothing was changed"
        )


_ADVICE = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "let this user read and write there, or name another place"),
    errno.ENOENT: "make the folder that it is to be in, or name another place",
    errno.EEXIST: "name one that is not there yet",
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG), "name another place"),
    errno.EROFS: "name a place on a disk that can be written",
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free disk space, or name a place on another disk"),
    errno.EIO: "look after that disk, or name another place",
}
"""What to do, by what a file system answers."""


def cannot_use(fault: OSError, path: Path | None = None) -> str:
    """What an operating system refused, in a sentence with the path and what to do.

    ``path`` is where an error happened that names no place, as those of open files do, if it is one of files at all.
    """
    if fault.errno is None:  # it is a sentence already
        return str(fault)
    place = fault.filename if isinstance(fault.filename, str) else path if fault.errno in _ADVICE else None
    if place is None:
        return reason(fault)
    advice = _ADVICE.get(fault.errno, _ADVICE[errno.EIO])
    return f"{place} cannot be used ({reason(fault)}): {advice}"


def check_writable(path: Path) -> None:
    """Open a file for writing, or create one without a name in a folder, which is gone at once. Raises NoAccess.

    A full disk passes: what it holds can be read.
    """
    try:
        if path.is_file():
            os.close(os.open(path, os.O_WRONLY))
        else:
            from tempfile import TemporaryFile  # dear to import, and asked for by daemons alone

            with TemporaryFile(dir=path):
                pass
    except OSError as fault:
        if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise NoAccess(path, "written", fault) from None


def no_folder(path: Path) -> str | None:
    """Why a path can never be a folder for files, as the end of a sentence; None if it is one, or may be made."""
    if not path.is_absolute():
        return "has no default, as this user has no home directory: set it to an absolute path"
    there = _nearest(path)
    return None if there.is_dir() else f"names {path}, and {there} is no folder: name a folder, or move that away"


def not_writable(path: Path) -> str | None:
    """Why files cannot be written in a folder, which may not be there yet, as the end of a sentence."""
    try:
        check_writable(_nearest(path))
    except NoAccess as fault:
        return f"does not work: {fault}"
    return None


def _nearest(path: Path) -> Path:
    """The path, or the nearest one above it that exists."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def backup_of(path: Path) -> Path:
    """The path of the content before the last replacement: ``kvConfig.json.bak``."""
    return path.with_name(path.name + ".bak")


def replace_file(path: Path, content: bytes, *, backup: bool = True, mode: int | None = None) -> None:
    """Make ``content`` the content of ``path``, durably; missing directories are created. Raises OSError.

    The permissions of a file that is there remain; a new one has ``mode``, or what the process gives to new files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    _write_durably(aside, content, stat.S_IMODE(path.stat().st_mode) if path.exists() else mode)
    if backup:
        _keep(path, content)
    os.replace(aside, path)
    flush_folder(path.parent)


def _keep(path: Path, new: bytes) -> None:
    old = path.with_name(path.name + ".bak.tmp")
    old.unlink(missing_ok=True)
    if not path.exists():
        if backup_of(path).exists():
            return
        _write_durably(old, new)
    else:
        try:
            os.link(path, old)
        except OSError:  # a file system without hard links
            _write_durably(old, path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    os.replace(old, backup_of(path))


def _write_durably(path: Path, content: bytes, mode: int | None = None) -> None:
    with path.open("wb") as file:
        if mode is not None:
            path.chmod(mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
