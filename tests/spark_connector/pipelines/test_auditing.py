"""The audit: who is behind and by how much, what was given up; the command, its exit codes and its page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from eruca.client import Message
from eruca.client.sync import PullConsumer
from eruca.spark_connector import BadOption
from eruca.spark_connector.pipelines import audit
from eruca.standalone.cli import main
from tests.spark_connector.pipelines.letters import give_up
from tests.support.spark import Topic

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "pipelines.md").read_text()


def consume(topic: Topic) -> None:
    """Ten messages in each of four queues, of which two groups have consumed a part, and all."""
    for number in range(40):
        topic.send(number % 4, b"body")
    with PullConsumer(nameserver=topic.name_server) as consumer:
        for queue, offset in zip(topic.queues, (10, 7, 0, 3), strict=True):
            consumer.update_offset(queue, offset, group="behind")
            consumer.update_offset(queue, 10, group="done")


def command(topic: Topic, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["pipeline", *arguments], env={"NAMESRV_ADDR": topic.name_server})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout or result.stderr


def test_each_group_is_held_against_each_queue(topic: Topic) -> None:
    consume(topic)

    found = audit(name_server=topic.name_server, topics=[topic.name], groups=["behind", "done", "never"])

    behind, done, never = found.groups
    assert [each.behind for each in behind.queues] == [0, 3, 10, 7]
    assert (behind.stored, behind.consumed, behind.behind, behind.lost) == (40, 20, 20, 0)
    assert (done.behind, done.consumed) == (0, 40)
    assert (never.never, never.behind) == (True, 40)
    assert found.faults(behind=20) == [f"never on {topic.name} has never consumed 40 messages."]
    assert found.faults()[0] == f"behind on {topic.name} has not consumed 20 messages."


def test_dead_letters_are_counted(topic: Topic) -> None:
    group = f"{topic.name}_readers"
    asyncio.run(give_up(topic, group, [Message(topic.name, b"bad") for _ in range(3)]))

    found = audit(name_server=topic.name_server, topics=[topic.name], groups=[group])

    assert (found.groups[0].dead, found.groups[0].retrying) == (3, 0)
    assert found.faults(behind=3, dead=2) == [f"{group} has 3 dead letters."]


def test_the_command_shows_who_is_behind_and_exits_by_it(topic: Topic) -> None:
    consume(topic)

    code, told = command(topic, "audit", "--topic", topic.name, "--group", "behind", "--group", "done")
    assert code == 3
    assert re.search(r"^broker-a:2 +█{40} 10$", told, re.M), told
    assert told.splitlines()[-1] == f"behind on {topic.name} has not consumed 20 messages."
    code, told = command(topic, "audit", "--topic", topic.name, "--group", "behind", "--max-behind", "20")
    assert (code, told.splitlines()[-1]) == (0, "Every group has consumed what it should.")


def test_what_fails_says_why_in_its_last_line(topic: Topic) -> None:
    code, told = command(topic, "audit", "--topic", "nowhere", "--group", "g")
    assert (code, told.splitlines()[-1]) == (
        1,
        "eruca pipeline: The topic nowhere is not there, or cannot be read: look with `mqadmin topicList`.",
    )
    code, told = command(topic, "audit", "--topic", "a", "--group", "g", "--access", "acessKey=a")
    assert (code, "has no option acessKey: did you mean accessKey?" in told) == (1, True), told
    code, told = command(topic, "audit", "--topic", "a", "--group", "g", "--access", "tls")
    assert (code, '"tls" is expected to be NAME=VALUE' in told) == (2, True), told
    with pytest.raises(BadOption, match="one topic and one group at least"):
        audit(name_server="127.0.0.1:1", topics=[], groups=["a"])


def test_the_example_runs(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    consume(topic)
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        text = example.replace("localhost:9876", topic.name_server).replace('"orders"', f'"{topic.name}"')
        exec(text.replace('"billing"', '"behind"'), names)

    assert f"behind on {topic.name} has not consumed 20 messages." in capsys.readouterr().out


def test_every_option_is_described() -> None:
    group = main.get_command(click.Context(main), "pipeline")
    assert isinstance(group, click.Group)
    described = set(re.findall(r"`(--[a-z-]+)", "\n".join(line for line in PAGE.splitlines() if line[:3] == "| `")))
    options = {opt for each in group.commands.values() for p in each.params for opt in p.opts if opt.startswith("--")}
    assert options == described
