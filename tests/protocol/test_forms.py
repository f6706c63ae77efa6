"""Sends that are written by a form are the bytes that the ordinary way writes."""

import msgspec
import pytest

from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError
from eruca.protocol.forms import encode_send, form_of
from eruca.protocol.headers.send import SendMessageV2

NOW = 1_763_767_000_123
TEXT = "UNIQ_KEY\x01C00002026C0AABBBF2266952730A0001\x02WAIT\x01true"


def send(**given: object) -> SendMessageV2:
    fields: dict[str, object] = {"producer_group": "makers", "topic": "Orders", "queue_id": 3, "sys_flag": 0, "flag": 0}
    fields |= {"born_timestamp": NOW, "properties": TEXT, "reconsume_times": 0}
    return SendMessageV2(**(fields | given))  # type: ignore[arg-type]


SENDS = [
    send(),
    send(queue_id=4),
    send(topic="Other"),
    send(producer_group='a "quoted" group, 100 % sure'),
    send(topic="%RETRY%makers"),
    send(flag=-5),
    send(sys_flag=0x301),
    send(batch=True),
    send(reconsume_times=None),
    send(max_reconsume_times=16),
    send(unit_mode=True),
    send(default_topic_queue_nums=8),
    send(properties=TEXT + '\x02KEYS\x01a"b\\c\x02city\x01Zürich 😀 %d'),
    send(properties=""),
    send(properties=None),
    send(born_timestamp=1),
    send(born_timestamp=NOW * 10),
    send(born_timestamp=-1),
]


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ, frame.MSGPACK])
@pytest.mark.parametrize("header", SENDS, ids=str)
def test_a_form_writes_what_the_ordinary_way_writes(header: SendMessageV2, serialization: int) -> None:
    for code, flag in ((310, 0), (320, 0), (310, frame.ONEWAY_FLAG)):
        for opaque in (0, 7, 2**31 - 1):  # the first of each makes the form, the others use it
            expected = frame.encode(serialization, code, opaque, flag, header, 128)
            assert encode_send(serialization, code, opaque, flag, header, 128) == expected


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@pytest.mark.parametrize("header", SENDS, ids=str)
def test_sends_of_every_kind_have_a_form(header: SendMessageV2, serialization: int) -> None:
    form = form_of(serialization, 310, 0, header)
    assert form is not None
    assert form.fill(NOW, TEXT, 7, 5) == frame.encode(serialization, 310, 7, 0, replace(header, TEXT), 5)
    with pytest.raises(ProtocolError, match="too long"):
        form.fill(NOW, TEXT, 7, frame.MAX_FRAME)


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@pytest.mark.parametrize("after", ["", "\x02WAIT\x01true", '\x02city\x01Zürich "😀" 100 %d'], ids=repr)
@pytest.mark.parametrize("key", ["C00002026C0AABBBF2266952730A0001", "AB" * 28, "7"])
def test_what_is_written_around_an_id_is_what_is_filled_in(serialization: int, after: str, key: str) -> None:
    form = form_of(serialization, 310, 0, send())
    assert form is not None
    write = form.around("UNIQ_KEY\x01", after)
    for opaque in (0, 7, 2**31 - 1):
        written = write(b"%d" % NOW, key.encode(), opaque, 128)
        assert written == form.fill(NOW, f"UNIQ_KEY\x01{key}{after}", opaque, 128)


def replace(header: SendMessageV2, text: str) -> SendMessageV2:
    return msgspec.structs.replace(header, born_timestamp=NOW, properties=text)


def test_a_form_is_of_one_kind_of_send_only() -> None:
    for header in SENDS * 2:
        assert encode_send(frame.JSON, 310, 9, 0, header, 0) == frame.encode(frame.JSON, 310, 9, 0, header)


def test_a_send_that_no_peer_accepts_is_refused() -> None:
    for _ in range(2):
        with pytest.raises(ProtocolError, match="too long"):
            encode_send(frame.JSON, 310, 1, 0, send(), frame.MAX_FRAME)
