"""A property read from the text agrees with the parsed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import properties_text
from eruca.protocol.message import encode_properties

words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)


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
