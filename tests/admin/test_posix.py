"""Command lines as commons-cli 1.2 reads them, and the usage it prints."""

import pytest

from eruca.admin.errors import UsageError
from eruca.admin.posix import Option, check, overruled, parse, usage

TOPIC = Option("t", "topic", "name of the topic", required=True)
STAMP = Option("s", "timestamp", "a time")
LIST = Option("l", "list", "as a table", takes_value=False)
MORE = Option("m", "more", "more of it", takes_value=False)
OPTIONS = (TOPIC, STAMP, LIST, MORE)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("-t T", {"t": "T"}),
        ("--topic T", {"t": "T"}),
        ("--topic=T", {"t": "T"}),
        ("-tT", {"t": "T"}),
        ("-lm -t T", {"l": "", "m": "", "t": "T"}),
        ("-lmtT", {"l": "", "m": "", "t": "T"}),
        ("-s -1 -t T", {"s": "-1", "t": "T"}),
        ("-s -1234 -t T", {"s": "-1234", "t": "T"}),
        ("-t T -t U", {"t": "T"}),
        ('-t "T"', {"t": "T"}),
        ("-t T -- -l", {"t": "T"}),
        ("", {}),
    ],
)
def test_a_line_is_read_as_operators_write_it(line: str, found: dict[str, str]) -> None:
    assert parse(OPTIONS, line.split()) == found


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-x", "there is no option -x"),
        ("--nothing", "there is no option --nothing"),
        ("-t", "option -t (--topic) needs a value"),
        ("-t -l", "option -t (--topic) needs a value"),
        ("-lx", "there is no option -lx"),
    ],
)
def test_what_is_no_line_is_refused_in_a_sentence(line: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(OPTIONS, line.split())
    assert str(refused.value) == words


@pytest.mark.parametrize("line", ["what -t T", "-t T is this", "-t two words"])
def test_a_word_that_belongs_to_no_option_is_wrong(line: str) -> None:
    with pytest.raises(UsageError, match=r"'(what|is|words)' belongs to no option; put a value with blanks in quotes"):
        parse(OPTIONS, line.split())


def test_the_option_is_shown_whose_value_has_blanks() -> None:
    with pytest.raises(UsageError, match=r'in quotes: --topic "two words"$'):
        parse(OPTIONS, ["--topic", "two", "words"])


def test_a_name_is_not_empty() -> None:
    with pytest.raises(UsageError, match=r"option -t \(--topic\) is empty"):
        check((TOPIC,), {"t": " "})


def test_required_options_and_groups_are_checked() -> None:
    grouped = (TOPIC, Option("b", "broker", "", group="bc"), Option("c", "cluster", "", group="bc"))
    check(grouped, {"t": "T", "c": "C"})
    for given, words in (
        ({"b": "B"}, "option -t (--topic) is required"),
        ({"t": "T"}, "one of -b and -c is required"),
        ({"t": "T", "b": "B", "c": "C"}, "-b and -c exclude each other"),
    ):
        with pytest.raises(UsageError) as refused:
            check(grouped, given)
        assert str(refused.value) == words


def test_an_option_that_yields_does_not_count_beside_another_of_its_group() -> None:
    broker, cluster = Option("b", "broker", "", group="bc"), Option("c", "cluster", "", group="bc", yields=True)
    for given, idle in (({"b": "B", "c": "C"}, [cluster]), ({"c": "C"}, []), ({"b": "B"}, [])):
        check((broker, cluster), given)
        assert overruled((broker, cluster), given) == idle
    with pytest.raises(UsageError, match="one of -b and -c is required"):
        check((broker, cluster), {})


def test_usage_has_apaches_layout() -> None:
    assert usage("mqadmin some", OPTIONS) == (
        "usage: mqadmin some [-l] [-m] [-s <arg>] -t <arg>\n"
        " -l,--list              as a table\n"
        " -m,--more              more of it\n"
        " -s,--timestamp <arg>   a time\n"
        " -t,--topic <arg>       name of the topic\n"
    )


def test_long_usage_is_folded_at_110_columns() -> None:
    many = tuple(Option(letter, f"option{letter}", "word " * 25) for letter in "abcdefghijklm")
    lines = usage("mqadmin some", many).splitlines()
    assert max(map(len, lines)) <= 110
    assert lines[0] == "usage: mqadmin some " + " ".join(f"[-{letter} <arg>]" for letter in "abcdefgh")
    assert lines[1] == "       " + " ".join(f"[-{letter} <arg>]" for letter in "ijklm")
    assert lines[2].startswith(" -a,--optiona <arg>   word")
    assert lines[3].startswith(" " * 22 + "word")
