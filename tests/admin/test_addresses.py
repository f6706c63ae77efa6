"""Odd addresses: every command that takes one says in a sentence what to write, ends with 2, and asks nobody."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from typing import NoReturn

import pytest

from eruca.admin.catalogue import names
from eruca.admin.cli import run
from eruca.admin.command import Command
from eruca.admin.commands import every, find
from eruca.admin.errors import Status
from eruca.admin.posix import Option
from tests.admin.conftest import Done, Lab

PORT, HOST = "a port is a number from 1 to 65535", '"host:port" is expected'
ODD = {
    "127.0.0.1:0": PORT,
    "127.0.0.1:65536": PORT,
    "127.0.0.1:٣": PORT,
    "127.0.0.1:abc": HOST,
    "127.0.0.1:-1": HOST,
    "127.0.0.1:": HOST,
    ":10911": HOST,
    "-1": HOST,
    "a b:10911": HOST,
    "10.0.0.256:10911": HOST,
    "me@broker:10911": "leave out the account",
    "::1:10911": "an IPv6 address stands in brackets",
    "http://127.0.0.1:10911": "'http://'",
}
"""What is no address, and what is said of it."""
OF_BROKERS = {
    **ODD,
    "": HOST,
    "abc": "add the port, as in abc:10911; mqadmin clusterList shows the addresses",
    "127.0.0.1": "add the port, as in 127.0.0.1:10911",
    "[::1]": "add the port, as in [::1]:10911",
    "127.0.0.1:10911;127.0.0.1:10913": "give one address",
}
OTHERWISE = {
    **dict.fromkeys(("sendMsgStatus", "queryMsgByOffset", "consumeMessage", "sendMessage", "check"), "broker"),
    **dict.fromkeys(("getSyncStateSet", "getBrokerEpoch", "wipeWritePerm", "addWritePerm"), "broker"),
    **dict.fromkeys(("printMsg", "printMsgByQueue"), "time"),
    **dict.fromkeys(("electMaster", "recreateGroup"), "number"),
}
"""Commands whose -b is no address: the name of a broker, as Apache's takes it, or something else."""
FAILURE = {"check": Status(3)}
"""A check that cannot know is UNKNOWN."""


class Alone(asyncio.SelectorEventLoop):
    """An event loop in which nobody may be asked."""

    async def create_connection(  # type: ignore[override]
        self, _: object, *place: object, **__: object
    ) -> NoReturn:
        raise AssertionError(f"{place} was asked")


def typed(*line: str, environment: Mapping[str, str] | None = None) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with asyncio.Runner(loop_factory=Alone) as runner:
        status = runner.run(run(line, {"HOME": "/nowhere", **(environment or {})}, out, err))
    return Done(status, out.getvalue(), err.getvalue())


def needed(command: Command, but: Option | None = None) -> list[str]:
    """What a command needs besides an option."""
    given = [option for option in command.options if option.required and option != but]
    groups = {"", but.group if but else ""}
    for option in command.options:
        if option.group not in groups:
            groups.add(option.group)
            given.append(option)
    values = {"number": "1", "address": "127.0.0.1:1", "time": "1", "place": "first", "boolean": "true"}
    return [word for option in given for word in (_spelled(option), (*option.choices, values.get(option.kind, "x"))[0])]


def _spelled(option: Option) -> str:
    return f"-{option.letter}" if option.letter else f"--{option.name}"


ADDRESSES = [(each, option) for each in every() for option in each.options if option.kind == "address"]


def test_every_b_that_names_a_brokers_place_is_an_address() -> None:
    others = {each.name: option.kind for each in every() for option in each.options if option.letter == "b"}
    assert {name: kind for name, kind in others.items() if kind != "address"} == OTHERWISE


@pytest.mark.parametrize(("command", "option"), ADDRESSES, ids=lambda each: getattr(each, "name", ""))
def test_of_a_broker(command: Command, option: Option) -> None:
    for odd, words in OF_BROKERS.items():
        done = typed("-n", "127.0.0.1:1", command.name, _spelled(option), odd, *needed(command, option))
        assert (done.status, done.out, done.err.count("\n")) == (Status.USAGE, "", 1), done
        assert done.err.startswith(f"mqadmin {command.name}: option {option}: '{odd}' is no address: "), done
        assert words in done.err, done


@pytest.mark.parametrize("name", names())
def test_of_a_nameserver(name: str) -> None:
    command = find(name)
    assert command is not None
    for odd, words in ODD.items():
        for value in (odd, f"127.0.0.1:9876;{odd}"):
            for line in ((name, "-n", value, *needed(command)), ("-n", value, name, *needed(command))):
                done = typed(*line)
                assert (done.status, done.err.count("\n")) == (FAILURE.get(name, Status.USAGE), 1), done
                assert words in done.err and done.err.startswith(f"mqadmin {name}: "), done


def test_of_a_nameserver_that_is_kept_or_in_the_environment() -> None:
    for odd, words in ODD.items():
        kept = typed("context", "add", "prod", "-n", odd)
        assert (kept.status, words in kept.err) == (Status.USAGE, True), kept
        named = typed("topicList", environment={"NAMESRV_ADDR": odd})
        assert (named.status, words in named.err) == (Status.USAGE, True), named


def test_nobody_is_asked_without_being_seen() -> None:
    with pytest.raises(AssertionError, match=r"127\.0\.0\.1.* was asked"):
        typed("topicList", "-n", "127.0.0.1:1")


async def test_addresses_that_may_be_right_are_asked(lab: Lab) -> None:
    port = lab.broker.rpartition(":")[2]
    assert (await lab.done("getBrokerConfig", "-b", f" localhost:{port} ")).out
    away = await lab.mqadmin("getBrokerConfig", "-b", "[::1]:1")
    assert (away.status, "connect to <[::1]:1> failed" in away.err) == (Status.FAILED, True), away
