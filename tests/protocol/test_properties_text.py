"""Edits of a properties text agree with the parsed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import properties_text
from eruca.protocol.message import decode_properties, encode_properties

names = st.sampled_from(["TAGS", "XTAGS", "KEYS", "标签", "a"])
words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)
texts = st.lists(st.tuples(names, words), max_size=6).map(
    lambda pairs: b"\x02".join(f"{name}\x01{value}".encode() for name, value in pairs)
)


@given(st.dictionaries(words, words, max_size=6))
def test_each_property_is_found(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    for name, value in properties.items():
        assert properties_text.get(text, name) == properties_text.get(text + b"\x02", name) == value.encode()
    assert properties_text.get(text, "\x03absent") == b""


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (b"TAGS\x01a\x02XTAGS\x01x\x02TAGS\x01b", b"b"),
        (b"XTAGS\x01x", b""),
        (b"TAGS\x01a\x02XTAGS\x01x", b"a"),
        (b"K\x01TAGS\x01a", b""),
        (b"TAGS\x01\x02K\x01v", b""),
        (b"\x02TAGS\x01a", b"a"),
        (b"", b""),
    ],
)
def test_the_last_property_of_a_name_counts(text: bytes, tags: bytes) -> None:
    assert properties_text.get(text, "TAGS") == tags


@given(texts, st.lists(names, max_size=3))
def test_removed_properties_are_gone_and_the_others_stay(text: bytes, gone: list[str]) -> None:
    left = {name: value for name, value in decode_properties(text).items() if name not in gone}
    assert decode_properties(properties_text.without(text, *gone)) == left
    assert properties_text.without(text + b"\x02", *gone) == properties_text.without(text, *gone)


@given(texts, st.dictionaries(names, words, max_size=3))
def test_set_properties_replace_those_of_the_same_name(text: bytes, values: dict[str, str]) -> None:
    whole = properties_text.with_(text, values)
    assert decode_properties(whole) == decode_properties(text) | values
    assert not whole.endswith(b"\x02") and not whole.startswith(b"\x02")
    for name, value in values.items():
        assert whole.count(name.encode() + b"\x01") >= 1 and properties_text.get(whole, name) == value.encode()
