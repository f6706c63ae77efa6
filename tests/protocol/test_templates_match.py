"""Templates match: the values are what reading the whole header gives, and other headers do not match."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import frame
from eruca.protocol.headers.send import SendMessageV2
from eruca.protocol.templates import Template, binary_send_key, json_send_key, template_of

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


def template(serialization: int, whole: bytes) -> Template | None:
    return template_of(serialization, whole, "g", "i")


def key(serialization: int, whole: bytes) -> bytes:
    return (json_send_key if serialization == frame.JSON else binary_send_key)(whole)


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@given(group=names, topic=names, first=texts, second=texts, born=borns, opaque=opaques)
def test_values_are_what_the_header_says(
    serialization: int, group: str, topic: str, first: str, second: str, born: int, opaque: int
) -> None:
    learned = template(serialization, header(serialization, *VALUES, group, topic))
    assert learned is not None
    for text in (first, second):
        whole = header(serialization, born, text, opaque, group, topic)
        assert key(serialization, whole) == key(serialization, header(serialization, *VALUES, group, topic))
        values = learned.match(whole)
        if text:
            assert values is not None
            assert (values.first, learned.unquote(values.second)) == (b"%d" % born, text)
            assert (values.second, values.opaque) == (learned.quote(text), opaque)
            assert learned.fill(opaque, values.first, values.second, 0)[8:] == whole


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
def test_a_header_that_differs_elsewhere_does_not_match(serialization: int) -> None:
    learned = template(serialization, header(serialization, *VALUES))
    assert learned is not None and learned.match(header(serialization, *VALUES)) is not None
    assert learned.match(header(serialization, *VALUES, flag=2)) is None
    changed = header(serialization, *VALUES)
    spans: Any = (VALUES[1].encode(), b"%d" % VALUES[0], b"TAGS\\u0001A\\u0002UNIQ_KEY\\u00017F")
    free = [range(at, at + len(span)) for span in spans if (at := changed.find(span)) >= 0]
    free.append(range(changed.find(b":17,") + 1, changed.find(b":17,") + 3))
    for at in range(len(learned.before) + (25 if serialization == frame.ROCKETMQ else 0), len(changed)):
        if not any(at in span for span in free):
            other = changed[:at] + bytes([changed[at] ^ 1]) + changed[at + 1 :]
            assert learned.match(other) is None, at


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@given(data=st.binary(max_size=200), at=st.integers(0, 300))
def test_noise_is_no_header(serialization: int, data: bytes, at: int) -> None:
    learned = template(serialization, header(serialization, *VALUES))
    assert learned is not None
    assert template(serialization, data) is None
    whole = header(serialization, *VALUES)
    for changed in (whole[:at] + data + whole[at:], whole[:at]):
        values = learned.match(changed)
        assert values is None or learned.fill(values.opaque, values.first, values.second, 0)[8:] == changed


def test_a_header_without_properties_or_with_a_remark_has_no_template() -> None:
    ask = SendMessageV2(producer_group="g", topic="T", queue_id=0, sys_flag=0, born_timestamp=VALUES[0], flag=0)
    assert template(frame.JSON, frame.encode(frame.JSON, 310, 1, 0, ask)[8:]) is None
    assert template(frame.ROCKETMQ, frame.encode(frame.ROCKETMQ, 310, 1, 0, ask)[8:]) is None
    ask.properties = "KEYS\x01k"
    assert template(frame.ROCKETMQ, frame.encode(frame.ROCKETMQ, 310, 1, 0, ask, 0, "a remark")[8:]) is None
