"""Headers that a template writes are the bytes that ``frame.encode`` writes."""

import msgspec
import pytest

from eruca.protocol import frame
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.pull import PullMessage
from eruca.protocol.headers.send import SendMessageV2, SendReply
from eruca.protocol.templates import Template, encode_send, pull_template, reply_template, send_template

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
def test_a_template_writes_what_the_encoder_writes(header: SendMessageV2, serialization: int) -> None:
    for code, flag in ((310, 0), (320, 0), (310, frame.ONEWAY_FLAG)):
        for opaque in (0, 7, 2**31 - 1):  # the first of each makes the template, the others use it
            expected = frame.encode(serialization, code, opaque, flag, header, 128)
            assert encode_send(serialization, code, opaque, flag, header, 128) == expected


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@pytest.mark.parametrize("header", SENDS, ids=str)
def test_sends_of_every_kind_have_a_template(header: SendMessageV2, serialization: int) -> None:
    template = send_template(serialization, 310, 0, header)
    assert template is not None
    assert fill(template, TEXT, 7, 5) == frame.encode(serialization, 310, 7, 0, replace(header, TEXT), 5)
    with pytest.raises(ProtocolError, match="too long"):
        fill(template, TEXT, 7, frame.MAX_FRAME)


@pytest.mark.parametrize("topic", ["T", "ns%T"])
@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@pytest.mark.parametrize("after", ["", "\x02WAIT\x01true", '\x02city\x01Zürich "😀" 100 %d'], ids=repr)
@pytest.mark.parametrize("key", ["C00002026C0AABBBF2266952730A0001", "AB" * 28, "7"])
def test_what_a_writer_writes_is_what_is_filled_in(serialization: int, after: str, key: str, topic: str) -> None:
    template = send_template(serialization, 310, 0, send(topic=topic))
    assert template is not None
    write = template.writer("UNIQ_KEY\x01", after, template.quote)
    for opaque in (0, 7, 2**31 - 1):
        for text in (after, after + "\x02KEYS\x01another"):
            written = write(opaque, b"%d" % NOW, key, text, b"x" * 128)
            assert written == fill(template, f"UNIQ_KEY\x01{key}{text}", opaque, 128)
    with pytest.raises(ProtocolError, match="too long"):
        write(7, b"%d" % NOW, key, after, bytes(frame.MAX_FRAME))


def fill(template: Template, text: str, opaque: int, body_length: int) -> bytes:
    return template.fill(opaque, b"%d" % NOW, template.quote(text), body_length)


def replace(header: SendMessageV2, text: str) -> SendMessageV2:
    return msgspec.structs.replace(header, born_timestamp=NOW, properties=text)


def test_a_template_is_of_one_kind_of_send_only() -> None:
    for header in SENDS * 2:
        assert encode_send(frame.JSON, 310, 9, 0, header, 0) == frame.encode(frame.JSON, 310, 9, 0, header)


def test_a_send_that_no_peer_accepts_is_refused() -> None:
    for _ in range(2):
        with pytest.raises(ProtocolError, match="too long"):
            encode_send(frame.JSON, 310, 1, 0, send(), frame.MAX_FRAME)


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
@pytest.mark.parametrize("region", ["DefaultRegion", '100%d%%"MMMM', "世界"])
def test_a_template_writes_replies_to_sends(serialization: int, region: str) -> None:
    reply = SendReply(msg_id="", queue_id=3, queue_offset=0, region=region)
    template = reply_template(serialization, "7F00000100002A9F", reply)
    assert template is not None
    for position, offset, opaque in ((0, 0, 0), (10**12, 2**40, 2**31 - 1)):
        reply.msg_id, reply.queue_offset = f"7F00000100002A9F{position:016X}", offset
        written = template.fill(opaque, b"%016X" % position, b"%d" % offset, 0)
        assert written == frame.encode_reply(serialization, opaque, reply, 0)


@pytest.mark.parametrize("serialization", [frame.JSON, frame.ROCKETMQ])
def test_a_template_writes_pulls(serialization: int) -> None:
    ask = PullMessage(
        consumer_group="g",
        topic="queueOffset",
        queue_id=1,
        queue_offset=5,
        max_msg_nums=5,
        sys_flag=4,
        commit_offset=5,
        suspend_timeout_millis=5,
        subscription='a || "queueOffset"',
    )
    template = pull_template(serialization, 11, ask)
    assert template is not None
    for offset, count in ((0, 1), (10**18, 10**9)):
        ask.queue_offset, ask.max_msg_nums = offset, count
        written = template.fill(9, b"%d" % offset, b"%d" % count, 0)
        assert written == frame.encode(serialization, 11, 9, 0, ask)
    assert pull_template(frame.MSGPACK, 11, ask) is None
