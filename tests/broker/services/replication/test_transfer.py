"""The HA protocol's bytes, in any chunking."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.broker.services.replication.transfer import Frame, FrameReader, ReportReader, frame_head, report
from eruca.protocol.errors import ProtocolError

FRAMES = st.lists(st.builds(Frame, st.integers(0, 2**62), st.binary(max_size=60)), max_size=6)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=12))
def test_frames_are_the_same_however_they_come(frames: list[Frame], cuts: list[int]) -> None:
    wire = b"".join(frame_head(frame.offset, len(frame.data)) + frame.data for frame in frames)
    reader = FrameReader()
    assert [frame for piece in pieces(wire, cuts) for frame in reader.feed(piece)] == frames


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=6), st.lists(st.integers(0, 100), max_size=12))
def test_the_newest_whole_report_counts(offsets: list[int], cuts: list[int]) -> None:
    reader = ReportReader()
    heard = [reader.feed(piece) for piece in pieces(b"".join(map(report, offsets)), cuts)]
    assert [offset for offset in heard if offset is not None][-1] == offsets[-1]


def test_what_javas_master_sends() -> None:
    """Captured of 4.9.7: it answers the report 0 with a frame of 32 768 bytes, 4000 with one that begins there."""
    assert report(0) == bytes(8)
    assert frame_head(0, 32768) == bytes.fromhex("0000000000000000 00008000")
    assert frame_head(4000, 32768) == bytes.fromhex("0000000000000fa0 00008000")


@pytest.mark.parametrize("head", [frame_head(-1, 0), frame_head(0, -1), frame_head(0, (64 << 20) + 1)])
def test_heads_that_no_master_sends_are_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError, match="no frame of a master's log"):
        FrameReader().feed(head)
