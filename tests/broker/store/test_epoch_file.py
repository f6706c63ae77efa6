"""``epochFileCheckpoint``: the bytes of RocketMQ 5.3.3, and what is not taken for a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.broker.failover.epochs import Epoch
from eruca.broker.store import StoreDamaged
from eruca.broker.store.epoch_file import decode_epochs, encode_epochs, read_epochs, write_epochs

OF_APACHE = b"4\n1319529546\n1-0\n3-4096\n4-5000\n7-123456789012\n"
"""Written by EpochFileCache of 5.3.3."""
EPOCHS = (Epoch(1, 0), Epoch(3, 4096), Epoch(4, 5000), Epoch(7, 123456789012))


def test_the_bytes_are_those_of_apache() -> None:
    assert encode_epochs(EPOCHS) == OF_APACHE
    assert decode_epochs(OF_APACHE) == EPOCHS
    assert decode_epochs(encode_epochs(())) == ()


@pytest.mark.parametrize("at", range(len(OF_APACHE)))
def test_a_damaged_list_is_none(at: int) -> None:
    assert decode_epochs(OF_APACHE[:at]) is None
    flipped = bytearray(OF_APACHE)
    flipped[at] ^= 1
    assert decode_epochs(bytes(flipped)) is None


def test_epochs_and_starts_must_rise() -> None:
    assert decode_epochs(encode_epochs((Epoch(1, 0), Epoch(2, 0)))) is None
    assert decode_epochs(encode_epochs((Epoch(2, 0), Epoch(2, 5)))) is None


def test_a_store_keeps_its_list(tmp_path: Path) -> None:
    assert read_epochs(tmp_path) == ()
    write_epochs(tmp_path, EPOCHS[:1])
    write_epochs(tmp_path, EPOCHS)
    assert read_epochs(tmp_path) == EPOCHS
    assert (tmp_path / "epochFileCheckpoint.bak").read_bytes() == encode_epochs(EPOCHS)

    (tmp_path / "epochFileCheckpoint").write_bytes(OF_APACHE[:-1])
    with pytest.raises(StoreDamaged, match="epochFileCheckpoint is damaged: copy it from a backup"):
        read_epochs(tmp_path)
    (tmp_path / "epochFileCheckpoint").unlink()
    assert read_epochs(tmp_path) == EPOCHS, "the copy is no older one"
