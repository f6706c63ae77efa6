"""What a daemon reads again while it runs, and when."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from eruca.remoting.reloads import Reloads


class Part:
    """A part of a daemon that holds the text of one file."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.path.write_text(text)
        self.text = text
        self.reads = 0

    def files(self) -> list[Path]:
        return [self.path]

    def read(self) -> Iterable[str]:
        self.reads += 1
        text = self.path.read_text()
        if text == "broken":
            raise ValueError("the text is broken")
        changes = [] if text == self.text else [f"{self.text} is now {text}"]
        self.text = text
        return changes


def parts(folder: Path, *names: str) -> tuple[Reloads, list[Part]]:
    reloads = Reloads()
    made = [Part(folder / name, "first") for name in names]
    for name, part in zip(names, made, strict=True):
        reloads.add(name, part.read, files=part.files)
    return reloads, made


def test_a_part_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    reloads, (one, other) = parts(tmp_path, "one", "other")
    reloads.changed()
    assert (one.reads, other.reads) == (0, 0)
    one.path.write_text("second text")
    reloads.changed()
    reloads.changed()
    assert (one.reads, one.text, other.reads) == (1, "second text", 0)


def test_a_file_of_the_same_size_and_time_that_was_put_in_its_place_counts_as_changed(tmp_path: Path) -> None:
    reloads, (one,) = parts(tmp_path, "one")
    status = one.path.stat()
    aside = tmp_path / "aside"
    aside.write_text("third")
    os.utime(aside, ns=(status.st_atime_ns, status.st_mtime_ns))
    aside.replace(one.path)
    reloads.changed()
    assert one.text == "third"


def test_a_file_that_appears_or_vanishes_is_a_change(tmp_path: Path) -> None:
    reloads, (one,) = parts(tmp_path, "one")
    one.path.unlink()
    reloads.changed()
    assert one.reads == 1
    one.path.write_text("first")
    reloads.changed()
    assert one.reads == 2


def test_all_parts_are_read_on_demand_and_a_broken_one_keeps_its_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reloads, (one, other) = parts(tmp_path, "one", "other")
    one.path.write_text("broken")
    other.path.write_text("second")
    reloads.all()
    assert (one.text, other.text) == ("first", "second")
    assert one.reads == other.reads == 1


def test_a_broken_file_is_told_once_and_not_at_each_look(tmp_path: Path) -> None:
    reloads, (one,) = parts(tmp_path, "one")
    one.path.write_text("broken")
    reloads.changed()
    reloads.changed()
    assert one.reads == 1


def test_a_name_is_registered_once(tmp_path: Path) -> None:
    reloads, (one,) = parts(tmp_path, "one")
    with pytest.raises(ValueError, match="the part one is registered already"):
        reloads.add("one", one.read)
