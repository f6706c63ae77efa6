"""Properties, tag hashes and message ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import message
from eruca.protocol.errors import ProtocolError
from eruca.protocol.message import (
    decode_properties,
    encode_properties,
    java_hash,
    offset_message_id,
    parse_offset_message_id,
    tags_code,
    unique_key,
)

words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)


@given(st.dictionaries(words, words, max_size=6))
def test_properties_come_back_as_they_were(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert not text.endswith(b"\x02")
    assert decode_properties(text) == decode_properties(text + b"\x02") == properties


def test_broken_pairs_are_left_out() -> None:
    assert decode_properties(b"a\x011\x02\x02b\x01\x02\x01c\x02d\x02e\x012") == {"a": "1", "e": "2"}


def test_the_last_of_two_equal_names_holds() -> None:
    text = b"TAGS\x01a\x02XTAGS\x01x\x02TAGS\x01b"
    assert decode_properties(text)["TAGS"] == "b"


def test_none_is_left_out_and_separators_are_refused() -> None:
    assert encode_properties({"a": None, "b": "1"}) == b"b\x011"
    for name, value in (("a", "x\x02y"), ("a\x01", "x"), ("a", "\x01")):
        with pytest.raises(ProtocolError, match="separator"):
            encode_properties({name: value})
    with pytest.raises(ProtocolError, match="32767"):
        encode_properties({"a": "x" * 32766})


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("TagA", 2598919), ("d", 100), ("%RETRY%G1", -1978267828), ("T1#k1", 79072524)],
)
def test_hash_codes_as_java_computes_them(text: str, code: int) -> None:
    assert java_hash(text) == code
    assert tags_code(text) == code


def java_hash_by_definition(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@given(st.text(max_size=400))
def test_hash_codes_follow_the_definition(text: str) -> None:
    assert java_hash(text) == java_hash_by_definition(text)


def test_no_tag_has_code_0() -> None:
    assert tags_code(None) == 0


@given(st.text(max_size=300), st.text(max_size=300))
def test_hashes_of_parts_join(first: str, second: str) -> None:
    assert java_hash(second, java_hash(first)) == java_hash(first + second)


def test_a_brokers_message_id() -> None:
    assert offset_message_id(bytes.fromhex("0102030400002A9F"), 4096) == "0102030400002A9F0000000000001000"
    assert parse_offset_message_id("0102030400002A9F0000000000001000") == (bytes.fromhex("0102030400002A9F"), 4096)


@given(st.sampled_from([8, 20]).flatmap(lambda size: st.binary(min_size=size, max_size=size)), st.integers(0, 2**63))
def test_broker_ids_come_back(host: bytes, offset: int) -> None:
    assert parse_offset_message_id(offset_message_id(host, offset)) == (host, offset)


def test_a_clients_message_id() -> None:
    key = unique_key(bytes([172, 17, 0, 1]), 0x15F0, 0x18B4AAC2, 0x0DBD69E8, 0)
    assert key == "AC11000115F018B4AAC20DBD69E80000"
    assert len(unique_key(bytes(16), 1, 2, 3, 65536 + 4)) == 56


@pytest.mark.parametrize("text", ["", "xyz", "0102", "G" * 32, "01 02" * 8, "0" * 40])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="32 or 56"):
        parse_offset_message_id(text)


def test_flag_bits() -> None:
    assert message.is_compressed(0x301) and not message.is_compressed(0x300)
    assert message.compression_type(0x1) == message.COMPRESSION_ZLIB
    assert message.compression_type(0x101) == message.COMPRESSION_LZ4
