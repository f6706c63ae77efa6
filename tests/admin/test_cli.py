"""mqadmin without a cluster: overview, usage, and errors of the command line."""

import io
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from eruca.admin.catalogue import SUBJECTS, names
from eruca.admin.cli import run
from eruca.admin.command import OUTPUT
from eruca.admin.commands import every
from eruca.admin.help_pages import OTHERS

GOLDEN = Path(__file__).parents[1] / "golden" / "mqadmin"

# Commands and their options as Apache's mqadmin 4.9.7 has them: ! required, / one of two, + takes no value.
OPTIONS = {
    "updateTopic": "b/ c/ t! r w p o u s",
    "deleteTopic": "t! c!",
    "updateTopicPerm": "b/ c/ t! p!",
    "topicRoute": "t! l+",
    "topicStatus": "t!",
    "topicClusterList": "t!",
    "topicList": "c+",
    "allocateMQ": "t! i/ g/",
    "updateOrderConf": "t! v m!",
    "clusterList": "m+ i",
    "brokerStatus": "b/ c/",
    "updateBrokerConfig": "b/ c/ k! v!",
    "getBrokerConfig": "b/ c/",
    "wipeWritePerm": "b!",
    "addWritePerm": "b!",
    "cleanExpiredCQ": "b c",
    "cleanUnusedTopic": "b c",
    "deleteExpiredCommitLog": "b c",
    "sendMsgStatus": "b! s c",
    "brokerConsumeStats": "b! t l o",
    "producer": "b!",
    "updateSubGroup": "b/ c/ g! s m d q r i w a",
    "deleteSubGroup": "b/ c/ g! r",
    "getConsumerConfig": "g!",
    "consumerProgress": "g s",
    "consumerConnection": "g! b",
    "consumerStatus": "g! i b s+",
    "producerConnection": "g! t!",
    "resetOffsetByTime": "g! t! s! f c+ b q o",  # the last three: of 5.3.3
    "resetOffset": "g! t f",  # Eruca's own
    "offsets": "g c",
    "export": "c",  # these as well
    "diff": "c f!",
    "apply": "c f!",
    "skipAccumulatedMessage": "g! t! f",
    "cloneGroupOffset": "s! d! t! o",
    "statsAll": "a+ t",
    "queryMsgById": "i! t c g d s u",
    "queryMsgByKey": "t! k!",
    "queryMsgByUniqueKey": "i! t! a+ g d",
    "queryMsgByOffset": "t! b! i! o!",
    "printMsg": "t! c s b e d",
    "printMsgByQueue": "t! a! i! c s b e p d f",
    "sendMessage": "t! p! k c b i m",
    "consumeMessage": "t! b o i g s e c",
    "checkMsgSendRT": "t! a s",
    "clusterRT": "a s c p m i",
    "queryMsgTraceById": "i! t",
    "startMonitoring": "",
    "console": "",
    "doctor": "g",
    "tail": "t! c s k f",
    "send": "t! k g c",
    "move": "g! t",
    "lag": "g",
    "check": "g t b w c",
    "top": "i",
    "exportMetadata": "b/ c/ f t+ g+ s+",
    "exportConfigs": "c! f",
    "exportMetrics": "c! f",
    "queryCq": "t! q! i! c b g",
    "updateKvConfig": "s! k! v!",
    "deleteKvConfig": "s! k!",
    "getNamesrvConfig": "",
    "updateNamesrvConfig": "k! v!",
    "updateAclConfig": "b/ c/ a! s! t g i u w m",
    "deleteAclConfig": "b/ c/ a!",
    "updateGlobalWhiteAddr": "b/ c/ g! p",
    "clusterAclConfigVersion": "b/ c/",
    "getAclConfig": "b/ c/",
}


async def mqadmin(*line: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return await run(line, {}, out, err), out.getvalue(), err.getvalue()


def test_commands_and_options_are_apaches() -> None:
    declared = {}
    for each in every():
        marks = []
        for option in each.options:
            if option.letter and option.letter not in "hn" and option.name != OUTPUT:
                mark = "!" if option.required else "/" if option.group else "" if option.takes_value else "+"
                marks.append(option.letter + mark)
        declared[each.name] = set(marks)
    wanted = {name: set(options.split()) for name, options in OPTIONS.items()}
    assert {name: declared[name] for name in OPTIONS} == wanted


def test_every_command_is_on_its_page() -> None:
    page = (GOLDEN.parents[2] / "docs" / "mqadmin.md").read_text()
    assert {name for name in names() if not re.search(rf"(`|mqadmin ){name}\b", page)} == set()


async def test_alone_it_lists_its_commands_by_subject() -> None:
    status, out, err = await mqadmin()
    assert (status, err) == (0, "")
    assert {line.split()[0] for line in out.splitlines() if line.startswith("   ")} == {*names(), *OTHERS} > {*OPTIONS}
    assert re.findall(r"(?m)^(\S.*):$", out) == [*SUBJECTS, "Other words"]


async def test_one_list_as_apaches() -> None:
    status, out, err = await mqadmin("help", "--flat")
    lines = out.splitlines()
    assert (status, err, lines[0]) == (0, "", "The most commonly used mqadmin commands are:")
    own = lines.index("Not in Apache's mqadmin 4.9:")
    assert {line.split()[0] for line in lines[1 : own - 1]} == set(names())
    assert {line.split()[0] for line in lines[own + 1 : -2]} == set(OTHERS)
    assert lines[-1] == "See 'mqadmin help <command>' for more information on a specific command."


@pytest.mark.parametrize("word", ["help", "-h", "--help"])
async def test_help_lists_the_commands(word: str) -> None:
    assert await mqadmin(word) == await mqadmin()


@pytest.mark.parametrize("line", [("help", "topicroute"), ("TopicRoute", "-h"), ("topicRoute", "-t", "T", "--help")])
async def test_usage_by_help_or_option_in_any_case(line: tuple[str, ...]) -> None:
    status, out, err = await mqadmin(*line)
    assert (status, err) == (0, "")
    assert out.startswith("usage: mqadmin topicRoute [-h] [-l] [-n <arg>] -t <arg>\n -h,--help")


@pytest.mark.parametrize(("name", "file"), [("resetOffsetByTime", "help"), ("updateTopic", "updateTopic")])
async def test_the_synopsis_and_names_are_those_apache_prints(name: str, file: str) -> None:
    def outline(text: str) -> str:
        """What is left of usages without the words that explain each option."""
        (found,) = re.findall(rf"usage: mqadmin {name}(?:.*\n)+?(?=\n|--- |\Z)", text)
        return re.sub(r"(?m)^( -\w,--\S+(?: <arg>)?) .*$", r"\1", found)

    apache = outline((GOLDEN / f"{file}.txt").read_text())
    assert outline((await mqadmin("help", name))[1]) == apache


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("updateTopic", "-t", "T"), "mqadmin updateTopic: one of -b and -c is required\n"),
        (("updateTopic", "-t", "T", "-b", "x", "-c", "y"), "mqadmin updateTopic: -b and -c exclude each other\n"),
        (("topicRoute",), "mqadmin topicRoute: option -t (--topic) is required\n"),
        (("topicRoute", "-t", "T", "-z"), "mqadmin topicRoute: there is no option -z\n"),
    ],
)
async def test_a_wrong_line_shows_the_usage_and_fails(line: tuple[str, ...], words: str) -> None:
    status, out, err = await mqadmin(*line)
    assert (status, err) == (2, words)
    assert out.startswith(f"usage: mqadmin {line[0]} ")


async def test_an_unknown_command_fails() -> None:
    assert await mqadmin("noSuchCommand") == (2, "", "The sub command noSuchCommand not exist.\n")
    assert await mqadmin("help", "noSuchCommand") == (2, "", "The sub command noSuchCommand not exist.\n")
    words = "The sub command topicLst not exist; did you mean topicList, topicStatus, topicRoute?\n"
    assert await mqadmin("topicLst", "-h") == (2, "", words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("sendMessage", "-t", "T", "-p", "x", "-i", "1"), "Broker name must be set if the queue is chosen!"),
        (("consumeMessage", "-t", "T", "-i", "1"), "Please set the brokerName before queueId!"),
        (("consumeMessage", "-t", "T", "-b", "b", "-o", "1"), "Please set queueId before offset!"),
        (("consumeMessage", "-t", "T", "-c", "0"), "Please input a positive messageNumber!"),
        (("consumeMessage", "-t", "T", "-s", "9999999999999"), "Please set the beginTimestamp before now!"),
        (("consumeMessage", "-t", "T", "-s", "9", "-e", "8"), "less than or equal to the endTimestamp"),
        (("queryMsgById", "-i", "nonsense"), "a message id has 32 or 56 hexadecimal digits, not 'nonsense'"),
    ],
)
async def test_a_value_that_nobody_can_mean_is_said_in_one_line(line: tuple[str, ...], words: str) -> None:
    status, out, err = await mqadmin(*line)
    assert (status, out) == (2, "")
    assert err.startswith(f"mqadmin {line[0]}: ") and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("topicList",), "no nameserver is known: name one with -n host:port or set NAMESRV_ADDR"),
        (("lag", "g"), "no nameserver is known: name one with -n host:port or set NAMESRV_ADDR"),
        (("getNamesrvConfig",), "no nameserver is known: name one with -n host:port or set NAMESRV_ADDR"),
        (("topicList", "-n", "127.0.0.1:1"), "connect to <127.0.0.1:1> failed: Connection refused"),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_line(line: tuple[str, ...], words: str) -> None:
    status, out, err = await mqadmin(*line)
    assert (status, out) == (1, "")
    assert err.startswith(f"mqadmin {line[0]}: ") and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            ("updateTopic", "-t", "T", "-b", "127.0.0.1:1", "-r", "x"),
            "option -r (--readQueueNums) takes a whole number, not 'x'",
        ),
        (("topicList", "-n", "http://here:9876"), "a nameserver is named as host:port, without 'http://'"),
        (("topicList", "-n", "here:70000"), "'here:70000' is no address of a nameserver: a port is a number from 1"),
        (("topicList", "--timeout", "0"), "option --timeout takes seconds, more than 0 and at most 3600, not '0'"),
        (
            ("clusterList", "-n", "127.0.0.1:1", "-i", "0"),
            "option -i (--interval) takes a whole number, 1 or more, not 0",
        ),
        (
            ("updateTopic", "-t", "T", "-b", "127.0.0.1:1", "-o", "x"),
            "option -o (--order) takes true or false, not 'x'",
        ),
        (
            ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "yesterdays"),
            "'yesterdays' is no time: give ms since 1970",
        ),
        (("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "2026-02-31#00:00:00:000"), "day is out of range for month"),
        (
            ("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "-5"),
            "-5 is before 1970: a time is ms since 1970, and -1 the end",
        ),
        (("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "1795369251"), "has 10 digits, as seconds since 1970 have"),
        (("printMsg", "-t", "T", "-s", "new, paid"), "tags are joined by two bars, 'new || paid'"),
        (("printMsgByQueue", "-t", "T", "-a", "b", "-i", "0", "-s", "new.*"), "'new.*' is no pattern: name each tag"),
        (("tail", "T", "-s", "price > 5"), "'price > 5' is a condition, no tags: it needs the type SQL92"),
        (("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "now", "-q", "1"), "-b and -q are given together"),
        (("resetOffset", "-g", "G", "-t", "T"), "give one of --to and --from-file"),
        (("resetOffset", "-g", "G", "--to", "first"), "give a topic with -t, or --all-topics"),
        (
            ("resetOffset", "-g", "G", "-t", "T", "--to", "first", "--queue", "a"),
            "takes broker:queue, such as broker-a:3",
        ),
    ],
)
async def test_a_value_that_an_option_does_not_take_is_wrong_usage(line: tuple[str, ...], words: str) -> None:
    status, out, err = await mqadmin(*line)
    assert (status, out) == (2, "")
    assert err.startswith(f"mqadmin {line[0]}: ") and words in err and err.count("\n") == 1


async def test_it_knows_its_version() -> None:
    out = io.StringIO()

    assert await run(["--version"], {}, out) == 0
    assert out.getvalue() == f"mqadmin {version('eruca')}\n"
