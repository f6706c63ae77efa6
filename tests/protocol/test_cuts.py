"""Headers of sends, cut: what is taken from one is what reading it whole gives, and other headers are let alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import frame
from eruca.protocol.cuts import Binary, Json, binary_head, cut_binary, cut_json, json_head
from eruca.protocol.headers.send import SendMessageV2

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
texts = st.text(st.sampled_from('aZ9é世"\\\x01\x02:,{} i') | st.characters(codec="utf-8"), max_size=40)
borns = st.integers(10**12, 10**13 - 1)
opaques = st.integers(0, 2**31 - 1)
VALUES = (1_700_000_000_000, "TAGS\x01A\x02UNIQ_KEY\x017F", 17)


def header(
    serialization: int, born: int, text: str, opaque: int, group: str = "pg", topic: str = "T", flag: int = 0
) -> bytes:
    ask = SendMessageV2(
        producer_group=group, topic=topic, queue_id=3, sys_flag=0, born_timestamp=born, flag=7, properties=text
    )
    return frame.encode(serialization, 310, opaque, flag, ask, 0, language="JAVA")[8:]


def cut(serialization: int, whole: bytes) -> Json | Binary | None:
    return cut_json(whole) if serialization == frame.JSON else cut_binary(whole)


def number(serialization: int, opaque: int) -> bytes:
    return b"%d" % opaque if serialization == frame.JSON else opaque.to_bytes(4, "big")


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@given(group=names, topic=names, first=texts, second=texts, born=borns, opaque=opaques)
def test_what_is_taken_is_what_the_header_says(
    serialization: int, group: str, topic: str, first: str, second: str, born: int, opaque: int
) -> None:
    learned = cut(serialization, header(serialization, *VALUES, group, topic))
    assert learned is not None
    for text in (first, second):
        whole = header(serialization, born, text, opaque, group, topic)
        assert (json_head if serialization == frame.JSON else binary_head)(whole) == learned.head
        taken = learned.take(whole)
        if '"' not in text or serialization == frame.ROCKETMQ:
            assert taken == (b"%d" % born, text, number(serialization, opaque))
        else:
            assert taken is None  # the ordinary way reads it


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
def test_a_header_that_differs_elsewhere_is_not_taken(serialization: int) -> None:
    learned = cut(serialization, header(serialization, *VALUES))
    assert learned is not None and learned.take(header(serialization, *VALUES)) is not None
    assert learned.take(header(serialization, *VALUES, flag=2)) is None
    changed = header(serialization, *VALUES)
    spans: Any = (VALUES[1].encode(), b"%d" % VALUES[0], b"TAGS\\u0001A\\u0002UNIQ_KEY\\u00017F")
    free = [range(at, at + len(span)) for span in spans if (at := changed.find(span)) >= 0]
    free.append(range(changed.find(b":17,") + 1, changed.find(b":17,") + 3))
    for at in range(len(learned.head) + (21 if serialization == frame.ROCKETMQ else 0), len(changed)):
        if not any(at in span for span in free):
            other = changed[:at] + bytes([changed[at] ^ 1]) + changed[at + 1 :]
            assert learned.take(other) is None, at


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@given(data=st.binary(max_size=200), at=st.integers(0, 300))
def test_noise_is_no_header(serialization: int, data: bytes, at: int) -> None:
    learned = cut(serialization, header(serialization, *VALUES))
    assert learned is not None
    assert cut(serialization, data) is None
    whole = header(serialization, *VALUES)
    taken = learned.take(whole[:at] + data + whole[at:])
    assert taken is None or taken[0].isdigit()
    learned.take(whole[:at])


def test_a_header_without_properties_or_with_a_remark_is_not_cut() -> None:
    ask = SendMessageV2(producer_group="g", topic="T", queue_id=0, sys_flag=0, born_timestamp=VALUES[0], flag=0)
    assert cut_json(frame.encode(frame.JSON, 310, 1, 0, ask)[8:]) is None
    assert cut_binary(frame.encode(frame.ROCKETMQ, 310, 1, 0, ask)[8:]) is None
    ask.properties = "KEYS\x01k"
    assert cut_binary(frame.encode(frame.ROCKETMQ, 310, 1, 0, ask, 0, "a remark")[8:]) is None
