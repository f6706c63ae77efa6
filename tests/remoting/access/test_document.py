"""Access files as they are written: read back alike by us and, by the rules of YAML 1.1, by Java."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from eruca.remoting.access.document import head_of, read_document, write_document

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_WORDS = "yes No on null ~ = << 012345678 1e5 0x1f 1_000 12:30:45 2024-01-31 true 1.5 +1 .inf * - ? & ! % @ 10.0.0.7"
_OTHERS = ["", " ", "- a", "a: b", "a #b", "&a", "'", '"', "\\", "{", "[", "a,b", "T=PUB|SUB", "10.0.*.*", "😀"]
_UNSEEN = ["a\nb", "\t", "\x00", "\u2028", "\ufeff", "\x85"]
tricky = st.sampled_from([*_WORDS.split(), *_OTHERS, *_UNSEEN])
value = st.one_of(st.none(), text, tricky)


@given(st.recursive(value, lambda inner: st.one_of(st.lists(inner), st.dictionaries(text, inner)), max_leaves=12))
@example([{"a": [["b", {"c": None}], {}]}, []])
def test_what_is_written_is_read_back(found: Any) -> None:
    written = write_document({"key": found})

    assert read_document(written, "x.yml") == {"key": found}


@given(st.one_of(text, tricky))
def test_a_text_is_a_text_by_the_rules_of_yaml_1_1(found: str) -> None:
    assert yaml.safe_load(write_document({"secretKey": found, "list": [found]})) == {
        "secretKey": found,
        "list": [found],
    }


def test_numbers_and_truth_values_are_written_as_such() -> None:
    written = write_document({"admin": True, "monitor": False, "dataVersion": [{"counter": 2, "timestamp": 17}]})

    assert written == "admin: true\nmonitor: false\ndataVersion:\n- counter: 2\n  timestamp: 17\n"


def test_a_file_in_the_form_of_4_9() -> None:
    account = {
        "accessKey": "ordinary",
        "secretKey": "12345678",
        "whiteRemoteAddress": None,
        "topicPerms": ["A=PUB|SUB"],
    }

    assert write_document(
        {"globalWhiteRemoteAddresses": ["10.0.0.*"], "accounts": [account], "more": []}, "# head\n"
    ) == (
        "# head\n"
        "globalWhiteRemoteAddresses:\n"
        "- '10.0.0.*'\n"
        "accounts:\n"
        "- accessKey: ordinary\n"
        "  secretKey: '12345678'\n"
        "  whiteRemoteAddress:\n"
        "  topicPerms:\n"
        "  - A=PUB|SUB\n"
        "more: []\n"
    )


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("", ""),
        ("# one\n\n#two\naccounts: []\n# three\n", "# one\n\n#two\n"),
        ("accounts: []\n", ""),
        ("---\n# one\n", ""),
        ("# only", "# only"),
    ],
)
def test_the_comments_at_the_head(text: str, head: str) -> None:
    assert head_of(text) == head


def test_texts_that_java_takes_for_others_are_in_quotes() -> None:
    stamp = yaml.safe_load("at: 2024-01-31")["at"]
    assert isinstance(stamp, datetime.date), "an unquoted date is none, which is why"
    assert write_document({"at": "2024-01-31"}) == "at: '2024-01-31'\n"
