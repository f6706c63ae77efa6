"""Java's .properties grammar: read as Java reads it, written so that Java reads it back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import properties
from eruca.protocol.errors import ProtocolError

texts = st.text(st.characters(codec="utf-8"), max_size=30)
mappings = st.dictionaries(texts, texts, max_size=8)
# Text that looks like a properties file: mostly the characters that mean something in one.
scribbles = st.text(st.sampled_from("ab \t\f\n\r\\=:#!éu0041"), max_size=60).filter(lambda text: "\\u" not in text)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("brokerName=broker-a", {"brokerName": "broker-a"}),
        ("brokerName : broker-a", {"brokerName": "broker-a"}),
        ("brokerName\tbroker-a", {"brokerName": "broker-a"}),
        ("  brokerName   =   broker-a", {"brokerName": "broker-a"}),
        ("brokerName", {"brokerName": ""}),
        ("=broker-a", {"": "broker-a"}),
        ("a = = b", {"a": "= b"}),
        ("a b=c", {"a": "b=c"}),
        ("a=b  ", {"a": "b  "}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3\n\n", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n   ! b=2\n\t\nc=3 # not a comment", {"c": "3 # not a comment"}),
        ("# ends in a backslash \\\nb=2", {"b": "2"}),
        ("a=1,\\\n     2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# part of it", {"a": "1# part of it"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n\\\na=1", {"a": "1"}),
        ("\\\n#a=1\nb=2", {"b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (r"a\ b\=c\:d=e", {"a b=c:d": "e"}),
        (r"path=C:\\store\tx\q", {"path": "C:\\store\txq"}),
        (r"a=\u0041\u00e9", {"a": "Aé"}),
        (r"rocket=\uD83D\uDE80", {"rocket": "🚀"}),
        (r"half=\uD83Dx\uDE80\uD83D", {"half": "\ufffdx\ufffd\ufffd"}),
        (r"\uD800=key", {"\ufffd": "key"}),
        (r"a=\\u0041", {"a": r"\u0041"}),
        ("a=\u2028b", {"a": "\u2028b"}),
        ("a\u00a0b=c", {"a\u00a0b": "c"}),
    ],
)
def test_text_means_what_it_means_to_java(text: str, meaning: dict[str, str]) -> None:
    assert properties.parse(text) == meaning


@pytest.mark.parametrize("bad", [r"\u12", r"\u12G4", r"\u", r"\u+123"])
def test_a_broken_unicode_escape_is_refused_with_its_line(bad: str) -> None:
    with pytest.raises(ProtocolError, match=r"line 3: .*four hexadecimal digits"):
        properties.parse(f"# fine\nok=1\nname={bad}\n")


@given(mappings)
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    written = properties.write(values)

    assert written.isascii()
    assert properties.parse(written) == values
    assert list(properties.parse(written)) == list(values)


def test_written_as_java_writes_it() -> None:
    values = {"a key": "  two blanks, = and : stay", "#x": "tab\tend", "é": "🚀\\"}

    assert properties.write(values) == (
        "a\\ key=\\  two blanks, = and : stay\n\\#x=tab\\tend\n\\u00E9=\\uD83D\\uDE80\\\\\n"
    )


@given(scribbles, mappings)
def test_an_amended_file_holds_the_changes_and_everything_else(text: str, changes: dict[str, str]) -> None:
    amended = properties.amend(text, changes)

    assert properties.parse(amended) == properties.parse(text) | changes


def test_amending_keeps_comments_order_and_the_other_lines() -> None:
    before = "# the cluster\nname = \\\n   old\n\n! ports\nport: 10911\nname=older\n# end"

    after = properties.amend(before, {"name": "new", "perm": "6"})

    assert after == ("# the cluster\nname = \\\n   old\n\n! ports\nport: 10911\nname=new\n# end\nperm=6\n")


def test_a_file_is_utf8_or_else_latin1() -> None:
    assert properties.decode("näme=ü".encode()) == "näme=ü"
    assert properties.decode("näme=ü".encode("latin-1")) == "näme=ü"
    assert properties.decode(b"\xef\xbb\xbfa=1") == "a=1"
