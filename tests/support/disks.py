"""Disks for tests: one whose power fails, one that is small. Both are skipped where the machine has not what they need.

Owns mounting and unmounting; nothing stays mounted after the ``with`` block. Invariant: a test is skipped where
mounting is not possible or not allowed; any other fault of a disk fails it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import pytest

from tests.support.processes import Process

_PROGRAM = Path(__file__).with_name("lossy.py")
_UNMOUNT = shutil.which("fusermount3") or shutil.which("fusermount")


def _why_no_lossy_disk() -> str | None:
    if importlib.util.find_spec("mfusepy") is None:
        return "mfusepy is not installed: pip install -e .[test]"
    if _UNMOUNT is None:
        return "fusermount3 is not installed: it comes with the system's package fuse3"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened: load the module fuse, or give the container that device"
    return None


_WHY_NOT = _why_no_lossy_disk()
_FORBIDDEN = ("operation not permitted", "permission denied", "must be superuser")
"""What a mount says of a machine that does not allow it."""
needs_lossy_disk = pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))


class LossyDisk:
    """The file system of ``lossy`` at ``folder``; with ``journal`` as durable as ext4, else as POSIX promises. With
    ``threads`` an fsync that takes its time keeps nobody else from the disk.

    Raises RuntimeError if it does not come up though the machine allows it.
    """

    def __init__(self, folder: Path, *, journal: bool = False, threads: bool = False) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        how = [word for word, said in (("journal", journal), ("threads", threads)) if said]
        command = [sys.executable, "-P", str(_PROGRAM), str(folder), *how]
        self._process = Process(command, folder.parent / "lossy.out", talks=True)
        if self._answer() != "mounted":
            self._close()
            _left_out_or_failed("a file system of one's own", self._process.output)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tell("end")
        self._unmount()
        self._close()

    def tell(self, *words: object) -> str:
        """Give a command; its answer."""
        self._process.input.write(" ".join(map(str, words)) + "\n")
        self._process.input.flush()
        return self._answer()

    def come_back(self) -> None:
        """After ``off`` and the end of all who used it: mount again what was durable."""
        self._unmount()
        assert self._answer() == "mounted"

    def _answer(self) -> str:
        return self._process.output_lines.readline().strip()

    def _unmount(self) -> None:
        assert _UNMOUNT is not None
        end = time.monotonic() + 10
        while (done := subprocess.run([_UNMOUNT, "-u", self.folder], capture_output=True, text=True)).returncode:
            assert time.monotonic() < end, done.stderr
            time.sleep(0.02)

    def _close(self) -> None:
        self._process.input.close()
        self._process.wait(10)
        self._process.close_pipes()


def _left_out_or_failed(what: str, said: str) -> NoReturn:
    if any(each in said.lower() for each in _FORBIDDEN):
        pytest.skip(f"this machine does not allow {what} to be mounted: {said.strip()[-200:]}")
    raise RuntimeError(f"{what} did not come up: {said.strip()[-2000:]}")


class SmallDisk:
    """A tmpfs of ``size`` bytes at ``folder``; skips the test where nothing may be mounted."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        mount = shutil.which("mount")
        if mount is None:
            pytest.skip("there is no mount command")
        done = subprocess.run(
            [mount, "-t", "tmpfs", "-o", f"size={size}", "small", folder], capture_output=True, text=True
        )
        if done.returncode:
            _left_out_or_failed("a small disk", done.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", self.folder], check=True)
