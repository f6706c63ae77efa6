"""eruca.group: the group as a broker knew it last."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.failover.group import Group, found
from eruca.broker.store import group_file
from eruca.broker.store.epoch_file import leave_group
from eruca.broker.store.group_file import read_group, write_group

GROUP = Group(2, 7, frozenset((1, 2)), 9, ((1, "a"), (2, "b"), (3, "c")))


def test_the_group_that_was_written_last_is_read(tmp_path: Path) -> None:
    assert read_group(tmp_path) is None
    write_group(tmp_path, found(1, "a"))
    write_group(tmp_path, GROUP)
    assert read_group(tmp_path) == GROUP


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    write_group(tmp_path, GROUP)
    path = tmp_path / group_file.NAME
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert read_group(tmp_path) is None
    path.write_bytes(whole.replace(b"7", b"8", 1))
    assert read_group(tmp_path) is None


def test_where_the_newest_cannot_be_written_no_older_one_is_left(tmp_path: Path) -> None:
    write_group(tmp_path, found(1, "a"))
    (tmp_path / f"{group_file.NAME}.tmp").mkdir()  # where the new one would be written first
    with pytest.raises(OSError, match="directory"):
        write_group(tmp_path, GROUP)
    assert read_group(tmp_path) is None


def test_a_store_that_is_used_outside_of_its_group_knows_none(tmp_path: Path) -> None:
    write_group(tmp_path, GROUP)
    leave_group(tmp_path)
    assert read_group(tmp_path) is None
