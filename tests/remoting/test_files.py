"""What is said of a file or folder that the operating system refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from eruca.remoting.files import cannot_use

PLACE = "/backup/a"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EACCES, "let this user read and write there, or name another place"),
        (errno.ENOENT, "make the folder that it is to be in, or name another place"),
        (errno.EEXIST, "name one that is not there yet"),
        (errno.ENOTDIR, "name another place"),
        (errno.EROFS, "name a place on a disk that can be written"),
        (errno.ENOSPC, "free disk space, or name a place on another disk"),
        (errno.EIO, "look after that disk, or name another place"),
    ],
)
def test_the_sentence_has_the_path_and_what_to_do(code: int, advice: str) -> None:
    for fault, path in ((OSError(code, os.strerror(code), PLACE), None), (OSError(code, "x"), Path(PLACE))):
        why = os.strerror(code) if path is None else "x"
        assert cannot_use(fault, path) == f"{PLACE} cannot be used ({why}): {advice}"


def test_what_is_no_file_and_what_is_a_sentence_already_stay() -> None:
    for path in (None, Path(PLACE)):
        assert cannot_use(OSError(errno.ECONNREFUSED, "Connection refused"), path) == "Connection refused"
    assert cannot_use(OSError("9 messages are in no queue")) == "9 messages are in no queue"
