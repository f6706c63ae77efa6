"""SQL92 expressions: what Apache RocketMQ's own filter answered, the limits, and texts nobody would write."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.protocol import sql92
from eruca.protocol.sql92 import Expression, NotComparable, Sql92Error, compile_sql, compile_whole

GOLDEN = Path(__file__).parents[1] / "golden" / "sql92"
WORDS = ("contains", "startswith", "endswith")
CASES = json.loads((GOLDEN / "cases.json").read_text())
PROPERTIES: list[dict[str, str]] = CASES["properties"]
EXPRESSIONS: list[str] = CASES["expressions"]


def answers(release: str) -> dict[str, str]:
    return dict(zip(EXPRESSIONS, (GOLDEN / f"{release}.txt").read_text().splitlines(), strict=True))


def answer(text: str) -> str:
    """What Eruca says, in the letters of the captured answers."""
    try:
        expression = compile_sql(text)
    except Sql92Error:
        return "-"
    return "".join(letter(expression, properties) for properties in PROPERTIES)


def letter(expression: Expression, properties: dict[str, str]) -> str:
    try:
        value = expression.evaluate(properties)
    except NotComparable:
        assert not expression.matches(properties)
        return "E"
    assert expression.matches(properties) is (value is True)
    return "N" if value is None else "T" if value else "F"


def begins_with_a_word(text: str) -> bool:
    return text.lower().strip().removeprefix("not ").startswith(WORDS)


def test_every_expression_gives_what_apache_5_gives() -> None:
    apache = answers("5.3.3")
    names = {text for text in EXPRESSIONS if begins_with_a_word(text)}
    wrong = {text: (answer(text), apache[text]) for text in EXPRESSIONS if answer(text) != apache[text]}
    assert wrong.keys() <= names, wrong


def test_contains_and_its_like_may_be_properties_as_in_apache_4() -> None:
    apache = answers("4.9.7")
    names = [text for text in EXPRESSIONS if begins_with_a_word(text)]
    assert len(names) > 5
    assert {text: answer(text) for text in names} == {text: apache[text] for text in names}


def test_what_both_releases_accept_means_the_same_in_both() -> None:
    one, other = answers("4.9.7"), answers("5.3.3")
    both = [text for text in EXPRESSIONS if not any(word in text.lower() for word in WORDS)]
    assert {text: one[text] for text in both} == {text: other[text] for text in both}


# ---------------------------------------------------------------------- faults and limits


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "position 1: a property or a constant is expected, not the end."),
        ("a >> 5", "position 4: a property or a constant is expected, not '>'."),
        ("a != 5", "position 3: '!' has no meaning here."),
        ("a = 'x", "position 5: this text has no closing '."),
        ("a = 5 AND (b = 6", "position 17: a closing bracket is expected, not the end."),
        ("a IN (5)", "position 7: a text in single quotes is expected, not '5'."),
        ("a IS 5", "position 6: NULL is expected, not '5'."),
        ("a NOT 5", "position 7: BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is expected, not '5'."),
        ("5", "position 1: a condition is expected here, not a number or a text."),
        ("a > 'x'", "position 3: only properties and numbers can be compared by >."),
        ("a = NULL", "position 3: NULL cannot be compared; write IS NULL or IS NOT NULL."),
        ("TRUE = 5", "position 6: TRUE and FALSE cannot be compared with a number or a text."),
        ("a BETWEEN 7 AND 3", "position 3: BETWEEN 7 AND 3 has its ends in the wrong order."),
        ("5 IN ('x')", "position 3: IN is asked of a property only."),
        ("a = 9223372036854775808", "position 5: 9223372036854775808 is larger than 9223372036854775807."),
        ("a = 0.0", "position 5: 0.0 is not within the numbers from 4.9E-324 to 1.7976931348623157E308."),
    ],
)
def test_a_wrong_expression_is_told_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(Sql92Error) as caught:
        compile_sql(text)
    assert str(caught.value) == f"The SQL92 expression '{text}' is wrong at {sentence}"


@pytest.mark.parametrize(
    ("text", "at", "rest"),
    [
        ("a LIKE 'x%'", 3, "LIKE 'x%'"),
        ("a > 5 b < 3", 7, "b < 3"),
        ("a = 5 /* five */ a = 6 ", 18, "a = 6 "),
    ],
)
def test_who_writes_an_expression_learns_which_part_of_it_brokers_ignore(text: str, at: int, rest: str) -> None:
    with pytest.raises(Sql92Error) as raised:
        compile_whole(text)

    assert str(raised.value) == (
        f"The SQL92 expression '{text}' is wrong at position {at}: brokers ignore {rest!r}; "
        "join conditions by AND or OR; for LIKE there are STARTSWITH, ENDSWITH and CONTAINS."
    )
    assert compile_sql(text).text == text  # as with Apache's brokers


@pytest.mark.parametrize("text", ["a = 5", " a = 5 \n", "a = 5 -- five", "a = 5 -- five\n", "a = 5 /* five */"])
def test_blanks_and_comments_behind_an_expression_are_no_part_of_it(text: str) -> None:
    assert compile_whole(text) is compile_sql(text)


def test_the_sentence_about_a_long_expression_is_short() -> None:
    with pytest.raises(Sql92Error) as caught:
        compile_sql("a = '" + "x" * 10_000)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("opening", ["(", "NOT ", "-", "+", "NOT (", "-(", "a = (", "a IS NULL OR ("])
def test_nesting_ends_at_its_limit(opening: str) -> None:
    for depth in (60, 2000):
        with pytest.raises(Sql92Error, match=r"nested more than 48 deep|is expected"):
            compile_sql(opening * depth + "a")


def test_a_chain_of_comparisons_ends_at_the_limit_of_nesting_and_one_of_conditions_does_not() -> None:
    with pytest.raises(Sql92Error, match="nested more than 48 deep"):
        compile_sql("a = 5" + " = TRUE" * 100)
    wanted = compile_sql(" OR ".join(f"a = {number}" for number in range(1000)))
    assert wanted.matches({"a": "999"}) and not wanted.matches({"a": "1000"})


def test_length_and_number_of_parts_are_limited() -> None:
    long = "a = '" + "x" * (sql92.MAX_LENGTH - 6) + "'"
    assert compile_sql(long).matches({"a": "x" * (sql92.MAX_LENGTH - 6)})
    with pytest.raises(Sql92Error, match="has 32769 characters; at most 32768 are allowed"):
        compile_sql(long + " ")
    with pytest.raises(Sql92Error, match="more than 2048 properties and constants"):
        compile_sql("a=5 OR " * 1024 + "a=5")
    many = ",".join(f"'{number}'" for number in range(4000))
    assert compile_sql(f"a IN ({many})").matches({"a": "3999"})


def test_an_expression_is_read_once() -> None:
    assert compile_sql("a > 41") is compile_sql("a > 41")


def test_only_the_latest_expressions_are_kept() -> None:
    first = compile_sql("kept = 0")
    for number in range(1, 1000):
        compile_sql(f"kept = {number}")
    assert compile_sql("kept = 0") is not first


def test_a_property_of_thousands_of_digits_is_a_number_or_not_as_in_java() -> None:
    expression = compile_sql("a = 5")
    assert expression.matches({"a": "0" * 30_000 + "5"})
    assert not expression.matches({"a": "5" * 30_000})
    assert compile_sql("a > 5.5").matches({"a": "9" * 30_000})


WORDS_AND_SIGNS = """
    a b 5 5.5 5L 'x' '' ( ) , = <> < <= > >= + - NOT AND OR BETWEEN IN IS NULL TRUE FALSE CONTAINS ENDSWITH -- /* */ ' #
"""
TOKENS = st.sampled_from(WORDS_AND_SIGNS.split())
NAMES = st.dictionaries(st.sampled_from("abc"), st.text(max_size=8))


@given(st.text(max_size=60), NAMES)
def test_any_text_is_an_expression_or_an_error(text: str, properties: dict[str, str]) -> None:
    try:
        compile_sql(text).matches(properties)
    except Sql92Error as error:
        assert str(error).startswith("The SQL92 expression '")


@given(st.lists(TOKENS, max_size=25).map(" ".join), NAMES)
def test_any_order_of_words_is_an_expression_or_an_error(text: str, properties: dict[str, str]) -> None:
    try:
        expression = compile_sql(text)
    except Sql92Error:
        return
    assert expression.matches(properties) in (True, False)


# ---------------------------------------------------------------------- the page


def rows_of_the_page() -> list[tuple[str, dict[str, str], bool]]:
    """The table of examples: expression, properties, whether it matches."""
    page = Path(__file__).parents[2] / "docs" / "filters.md"
    rows = re.findall(r"^\| `([^|]*)` \| ([^|]*) ?\| (yes|no) \|$", page.read_text(), flags=re.MULTILINE)
    return [(text, dict(re.findall(r"(\w+)=([^ ,]+)", given)), found == "yes") for text, given, found in rows]


def test_the_examples_of_the_page() -> None:
    rows = rows_of_the_page()
    assert len(rows) == 15
    for text, properties, matches in rows:
        assert compile_sql(text).matches(properties) is matches, text
