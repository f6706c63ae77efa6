"""fastjson's dialect: read as fastjson 1.2.69 reads it, written as it writes it.

The files of tests/golden/fastjson were written by fastjson itself (Capture.java).
"""

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import fastjson
from eruca.protocol.errors import ProtocolError
from eruca.protocol.fastjson import Style, parser, plain
from eruca.protocol.queues import Int32, MessageQueue

GOLDEN = Path(__file__).parent.parent / "golden" / "fastjson"

texts = st.text(st.characters(codec="utf-8"), max_size=12)
leaves = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), texts)
values = st.recursive(
    leaves.filter(lambda leaf: leaf not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
queues = st.builds(MessageQueue, texts, texts, st.integers(-(2**31), 2**31 - 1))
# Text made of the pieces that mean something in the dialect.
scribbles = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ":", ",", '"', "'", "\\", "\\u00", "a", "0", "-1", "1.5", "e9", " ",
         "null", "true", "NaN", "$ref", '{"$ref":"$.a"}', '"a"', "//", "/*", "*/", "\n", "é"]
    ),
    max_size=25,
).map("".join)  # fmt: skip


class Sample(msgspec.Struct, kw_only=True, rename="camel"):
    """Members of every kind, in step with Sample of Capture.java."""

    flag: bool = False
    language: str | None = None
    items: list[str] | None = msgspec.field(default=None, name="list")
    longs: dict[int, str] | None = None
    number: Int32 = 0
    queues: dict[MessageQueue, int] | None = None
    real: float = 0.0
    text: str | None = None


read_sample = fastjson.reader(Sample)

# Where this reader differs from fastjson on purpose.
STRICTER = {
    "[]",  # no object
    "",
    '{"list":["a" "b"]}',  # a comma is missing
    '{"list":"a"}',
}
OTHERWISE = {
    '{"text":1.50}': b'{"flag":false,"number":0,"real":0.0,"text":"1.5"}',
    '{"language":"MARTIAN"}': b'{"flag":false,"language":"MARTIAN","number":0,"real":0.0}',
    '{"language":9}': b'{"flag":false,"language":"9","number":0,"real":0.0}',
    '{"list":[1,true,null,"x"]}': b'{"flag":false,"list":["1","true","x"],"number":0,"real":0.0}',
}


def golden_lines(name: str) -> list[str]:
    return (GOLDEN / name).read_text("utf-8").rstrip("\n").split("\n")


@pytest.mark.parametrize(("text", "result"), [json.loads(line) for line in golden_lines("readings.jsonl")])
def test_reads_what_fastjson_reads_and_refuses_what_it_refuses(text: str, result: str) -> None:
    if result == "refused" or text in STRICTER:
        with pytest.raises(ProtocolError):
            read_sample(text)
    else:
        wanted = OTHERWISE.get(text, result.encode())
        assert fastjson.dumps(read_sample(text)) == wanted


def test_escapes_every_character_as_fastjson_does() -> None:
    for line in golden_lines("escapes.tsv"):
        standard, plain = line.split("\t")
        text = json.loads(standard)
        assert fastjson.dumps(text, Style.STANDARD).decode() == standard
        assert fastjson.dumps(text).decode() == plain
        assert fastjson.loads(plain) == text


def test_writes_doubles_as_java_does() -> None:
    for line in golden_lines("doubles.txt"):
        bits, text = line.split(" ")
        (value,) = struct.unpack(">d", struct.pack(">q", int(bits)))
        assert fastjson.double_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_its_text(value: float) -> None:
    assert float(fastjson.double_text(value)) == value


def test_numbers_without_a_value_are_null() -> None:
    assert fastjson.dumps([float("nan"), float("inf"), None]) == b"[null,null,null]"


def test_only_what_json_knows_is_written() -> None:
    with pytest.raises(TypeError, match="fastjson writes no bytes"):
        fastjson.dumps(b"x")


@given(values)
def test_compact_text_reads_back(value: Any) -> None:
    assert fastjson.loads(fastjson.dumps(value)) == without_null_members(value)


@given(values)
def test_pretty_and_standard_text_read_back(value: Any) -> None:
    for style in (Style.PRETTY, Style.STANDARD):
        assert fastjson.loads(fastjson.dumps(value, style)) == without_null_members(value)


@given(values)
def test_the_tolerant_parser_agrees_with_standard_json(value: Any) -> None:
    text = json.dumps(value)
    assert parser._Parser(text).read() == json.loads(text)


@given(st.dictionaries(queues, st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_maps_of_queues_read_back_from_every_style(table: dict[MessageQueue, int]) -> None:
    read = fastjson.reader(dict[MessageQueue, int])
    for style in Style:
        assert read(fastjson.dumps(table, style)) == table


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), texts, max_size=5))
def test_maps_of_numbers_read_back_from_every_style(table: dict[int, str]) -> None:
    read = fastjson.reader(dict[int, str])
    for style in Style:
        assert read(fastjson.dumps(table, style)) == table


@given(texts)
def test_digits_and_colons_inside_strings_stay_as_they_are(text: str) -> None:
    tricky = text + '{5:"x",6:'
    read = fastjson.reader(dict[int, str])
    assert read(fastjson.dumps({7: tricky})) == {7: tricky}


def without_null_members(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null_members(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_null_members(member) for member in value]
    return value


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"b":{"$ref":"$.a[1]"},"a":[1,{"x":1}]}', {"b": {"x": 1}, "a": [1, {"x": 1}]}),
        (r'{"a":{"1.2@3":[5]},"b":{"$ref":"$.a.1\\.2\\@3"}}', {"a": {"1.2@3": [5]}, "b": [5]}),
        ('{"a":[{"$ref":"$"},{"$ref":"@"},{"$ref":".."}]}', {"a": [None, None, None]}),
        ('{"a":{"b":{"c":{"$ref":"$.a"}}}}', {"a": {"b": {"c": None}}}),
        ('{"a":{"x":{"$ref":"$.b"}},"b":{"x":{"$ref":"$.a"}}}', {"a": {"x": None}, "b": {"x": None}}),
        ('{"a":{"$ref":"$.nowhere.b"}}', {"a": None}),
        ('{"a":{"$ref":"nonsense"}}', {"a": None}),
        ('{"a":[{"$ref":"$.b"}],"b":1,"a":5}', {"a": 5, "b": 1}),
        ('{"$ref":"$"}', None),
        ('{"a":{"$ref":5}}', {"a": {"$ref": 5}}),
    ],
)  # fmt: skip
def test_references_are_resolved_and_never_make_a_cycle(text: str, meaning: Any) -> None:
    assert fastjson.loads(text) == meaning


def test_references_cannot_blow_a_text_up() -> None:
    big = ",".join(["1"] * 60_000)
    with pytest.raises(ProtocolError, match=r"\$ref repeats more than"):
        fastjson.loads(f'{{"a":[{big}],"b":{{"$ref":"$.a"}},"c":{{"$ref":"$.a"}}}}')


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{a:" * 100_000, "{{" * 100_000, "[/*" * 10, '"' + "\\" * 7, "9" * 5000,
     "{x:" + "9" * 5000 + "}", "1e999", "{'a':1e999}", "/", "{/", "{:1}", "{a}", "'", "\x00",
     '{{"$ref":"$"}:1}', "{{{a:1}:2}:3}", "{[{{a:1}:2}]:3}", '"' + '\\"' * 200_000],
)  # fmt: skip
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(text)


def test_a_string_that_never_ends_costs_one_look() -> None:
    with pytest.raises(ProtocolError, match="not closed"):
        fastjson.reader(dict[int, str])('{"' + '\\"' * 300_000)


def test_what_is_nested_deeply_is_refused_where_it_does_not_fit() -> None:
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        deep = opened * 900 + "1" + closed * 900
        for member in ("text", "number", "list", "longs", "queues"):
            with suppress(ProtocolError):
                read_sample(f'{{"{member}":{deep}}}')
            with suppress(ProtocolError):
                read_sample(f'{{"{member}":{{"x":{deep}}}}}')


def test_text_that_is_not_utf8_or_too_long_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not UTF-8"):
        fastjson.loads(b'{"a":"\xff"}')
    with pytest.raises(ProtocolError, match="longer than"):
        fastjson.loads(b" " * (plain.MAX_SIZE + 1))


def test_half_a_surrogate_pair_reads_as_a_replacement() -> None:
    assert fastjson.loads(r'"a\uD800b"') == "a\ufffdb"


@given(scribbles)
def test_any_text_gives_a_value_or_a_protocol_error(text: str) -> None:
    for read in (fastjson.loads, read_sample, fastjson.reader(dict[MessageQueue, int])):
        with suppress(ProtocolError):
            read(text)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_protocol_error(data: bytes) -> None:
    for read in (fastjson.loads, read_sample):
        with suppress(ProtocolError):
            read(data)


def test_a_misfit_says_where_it_is() -> None:
    with pytest.raises(ProtocolError, match=r"^longs\.x: an integer expected, found 'x'$"):
        read_sample('{"longs":{"x":"y"}}')
    with pytest.raises(ProtocolError, match=r"^the text: an object expected"):
        read_sample("[]")


def _long_table(few: dict[str, Any], times: int) -> dict[str, Any]:
    return {f"{key}{number}": value for number in range(times) for key, value in few.items()}


few = st.one_of(st.none(), st.integers(0, 9), values)
long_tables = st.builds(_long_table, st.dictionaries(texts, few, min_size=1, max_size=5), st.integers(60, 140))
long_lists = st.builds(lambda few, times: few * times, st.lists(few, min_size=1, max_size=5), st.integers(130, 140))
"""Drawn from few values: a hundred drawn ones take seconds."""


@given(st.one_of(values, long_tables, st.dictionaries(queues, st.integers(0, 9)), long_lists))
def test_pieces_are_the_text_little_by_little(value: Any) -> None:
    assert "".join(fastjson.pieces(value)).encode() == fastjson.dumps(value)


def test_a_long_table_comes_in_short_pieces() -> None:
    value = {"texts": ["x" * 5000] * 100, "numbers": dict.fromkeys(range(100_000), 1)}
    pieces = list(fastjson.pieces(value))
    assert "".join(pieces).encode() == fastjson.dumps(value)
    assert max(map(len, pieces)) < 5100 and len(pieces) > 1600
