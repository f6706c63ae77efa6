"""Each command that reads, while a broker, a nameserver or a member hangs or is dead.

What is alive is shown, and is what it was when all was well; who is silent is named; nothing that is not known is 0;
the exit status says that it is a part; no trouble costs more than one time-out.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from eruca.admin.catalogue import names
from eruca.admin.cli import run
from eruca.admin.commands import every
from eruca.admin.errors import Status
from tests.support.stopwatch import Stopwatch
from tests.support.two_masters import CLUSTER, TwoMasters

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.xdist_group("troubles")]

TIMEOUT = 3
"""Seconds for each request; twice that is too much."""
STOPPED, KILLED, NAMESERVER, MEMBER = "broker stopped", "broker killed", "nameserver stopped", "member stopped"
BROKER = frozenset({STOPPED, KILLED})
TROUBLES = (MEMBER, NAMESERVER, STOPPED, KILLED)
"""In this order; the broker is broker-a, which is the first one of every route."""


@dataclass(frozen=True)
class Call:
    """A command line, and what an operator sees of it in trouble."""

    line: str
    part: frozenset[str] = frozenset()
    """The troubles in which it shows a part."""
    nothing: frozenset[str] = frozenset()
    """Those in which it shows nothing: it asks this broker alone, or a part of its answer would do harm."""
    alive: bool = True
    """Whether what it shows is at the other broker for certain; traces are at either."""
    ends: int | None = None
    """Its exit status in trouble, where it has one of its own."""


CALLS = (
    Call("topicRoute -t T"),
    Call("topicStatus -t T", BROKER),
    Call("topicClusterList -t T"),
    Call("topicList"),
    Call("topicList -c", BROKER),
    Call("allocateMQ -t T -i x,y"),
    Call("allocateMQ -t T -g g", BROKER | {MEMBER}),
    Call("updateOrderConf -t T -m get"),
    Call("clusterList", BROKER),
    Call("clusterList -m", BROKER),
    Call(f"brokerStatus -c {CLUSTER}", BROKER),
    Call(f"getBrokerConfig -c {CLUSTER}", BROKER),
    Call("getBrokerConfig -b A", nothing=BROKER),
    Call("brokerConsumeStats -b A", nothing=BROKER),
    Call("brokerConsumeStats -b B"),
    Call(f"haStatus -c {CLUSTER}", BROKER),
    Call("haStatus -b A", nothing=BROKER),
    Call(f"getSyncStateSet -c {CLUSTER}", nothing=BROKER, ends=Status.FAILED),  # these elect no master
    Call(f"getBrokerEpoch -c {CLUSTER}", nothing=BROKER, ends=Status.FAILED),
    Call("producer -b A", nothing=BROKER),
    Call(f"exportMetadata -c {CLUSTER} -f FOLDER", BROKER),
    Call("exportMetadata -b A -t -f FOLDER", nothing=BROKER),
    Call(f"exportConfigs -c {CLUSTER} -f FOLDER", BROKER),
    Call(f"exportMetrics -c {CLUSTER} -f FOLDER", BROKER),
    Call("startMonitoring --rounds 1", BROKER | {MEMBER}, ends=Status.DONE),
    Call("lag", BROKER),
    Call("check lag -g g -w 100 -c 200", BROKER, ends=3),
    Call("check broker -w 60000 -c 60000", BROKER, ends=2),
    Call("doctor", frozenset(TROUBLES), ends=Status.FAILED),
    Call("export", nothing=BROKER),
    Call("diff -f FILE", nothing=BROKER),
    Call("apply -f FILE --dry-run", nothing=BROKER),
    Call("offsets export -g g", nothing=BROKER),
    Call("offsets import --file OFFSETS --dry-run", nothing=BROKER),
    Call("getConsumerConfig -g g", BROKER),
    Call("consumerConnection -g g", BROKER),
    Call("producerConnection -g p -t T", BROKER),
    Call("consumerStatus -g g", BROKER | {MEMBER}),
    Call("consumerProgress", BROKER),
    Call("consumerProgress -g g", BROKER),
    Call("consumerProgress -g g -s true", BROKER | {MEMBER}),
    Call("statsAll", BROKER),
    Call("statsAll -t T", BROKER),
    Call("resetOffsetByTime -g g -t T -s 0 --dry-run", nothing=BROKER),
    Call("skipAccumulatedMessage -g g -t T --dry-run", nothing=BROKER),
    Call("resetOffset -g g -t T --to first --dry-run", nothing=BROKER),
    Call("queryMsgById -i STORED", BROKER),
    Call("queryMsgByKey -t T -k key", BROKER),
    Call("queryMsgByUniqueKey -t T -i SENT", BROKER),
    Call("queryMsgByOffset -t T -b broker-b -i 0 -o 0", BROKER),
    Call("queryMsgByOffset -t T -b broker-a -i 0 -o 0", nothing=BROKER),
    TRACED := Call("queryMsgTraceById -i SENT", BROKER, alive=False),
    Call("queryCq -t T -q 0 -i 0 -b B"),
    Call("consumeMessage -t T", BROKER),
    Call("printMsg -t T", BROKER),
    Call("printMsgByQueue -t T -a broker-a -i 0 -p true", nothing=BROKER),
    Call("move g --dry-run", nothing=BROKER),
    Call("getNamesrvConfig", frozenset({NAMESERVER})),
    Call(f"clusterAclConfigVersion -c {CLUSTER}", BROKER),
    Call(f"getAclConfig -c {CLUSTER}", nothing=frozenset(TROUBLES), ends=Status.FAILED),  # Eruca gives out no secrets
)
OFFSETS = '{"group": "g", "queues": [{"topic": "T", "brokerName": "broker-b", "queueId": 0, "offset": 0}]}'
CHANGES = {
    *("updateTopic", "deleteTopic", "updateTopicPerm", "updateBrokerConfig", "updateSubGroup", "deleteSubGroup"),
    *("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog", "cloneGroupOffset", "updateKvConfig"),
    *("deleteKvConfig", "updateNamesrvConfig", "wipeWritePerm", "addWritePerm", "updateAclConfig", "deleteAclConfig"),
    "updateGlobalWhiteAddr",
    *("sendMessage", "send", "sendMsgStatus", "checkMsgSendRT", "clusterRT", "electMaster", "recreateGroup"),
}
"""Commands that change something, or send."""
SCREENS = {"top", "console", "tail"}
"""Those that run until they are ended; they have tests of their own. ``tail`` waits for a broker to come back."""


class Done(NamedTuple):
    """What became of a call."""

    status: int
    out: str
    err: str
    took: float
    """Seconds, without those that the machine gave to others: all calls and their servers share it."""
    document: Any
    """The output of the same call with ``-o json``, where it has that form."""


Outcome = dict[tuple[str, str], Done]
"""By trouble ("" for none) and command line."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Every call in every trouble; all calls of one are made side by side."""
    home = tmp_path_factory.mktemp("two")
    with contextlib.chdir(home):  # where consumerStatus writes
        yield asyncio.run(_tried(TwoMasters(home)))


async def _tried(cluster: TwoMasters) -> Outcome:
    done: Outcome = {}
    watch = Stopwatch()

    async def tried(trouble: str) -> None:
        made = await asyncio.gather(*(_made(cluster, each, watch) for each in CALLS))
        done.update({(trouble, call.line): found for call, found in zip(CALLS, made, strict=True)})

    with watch:
        await _try_all(cluster, watch, tried)
    return done


async def _try_all(cluster: TwoMasters, watch: Stopwatch, tried: Callable[[str], Awaitable[None]]) -> None:
    async with cluster:
        (cluster.home / "cluster.json").write_text('{"topics": [{"name": "T"}]}')
        (cluster.home / "offsets.json").write_text(OFFSETS)
        async with asyncio.timeout(20):
            while (await _made(cluster, TRACED, watch)).status:  # noqa: ASYNC110 (until the broker has dispatched it)
                await asyncio.sleep(0.05)
        await tried("")
        cluster.silent.add("10.0.0.2@b")
        await tried(MEMBER)
        cluster.silent.clear()
        with cluster.stopped_nameserver():
            await tried(NAMESERVER)
        cluster.brokers["broker-a"].signal(signal.SIGSTOP)
        await tried(STOPPED)
        await cluster.kill("broker-a")
        await tried(KILLED)


async def _made(cluster: TwoMasters, call: Call, watch: Stopwatch) -> Done:
    sent, stored = cluster.ids["broker-b"]
    words = {"A": cluster.brokers["broker-a"].address, "B": cluster.brokers["broker-b"].address}
    words |= {"FOLDER": str(cluster.home / "out"), "FILE": str(cluster.home / "cluster.json")}
    words |= {"SENT": sent, "STORED": stored, "OFFSETS": str(cluster.home / "offsets.json")}
    line = [*(words.get(each, each) for each in call.line.split()), "--timeout", str(TIMEOUT)]
    environment = {"NAMESRV_ADDR": cluster.address, "HOME": str(cluster.home), "XDG_STATE_HOME": str(cluster.home)}

    async def made(*more: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        return await run([*line, *more], environment, out, err), out.getvalue(), err.getvalue()

    results = {each.name: each.results for each in every()}[line[0]]
    began = watch.seconds
    asks = [made(), *([made("--output", "json")] if results else [])]
    (status, out, err), *others = await asyncio.gather(*asks)
    document = json.loads(others[0][1]) if others and others[0][1] else None
    return Done(status, out, err, watch.seconds - began, document)


def test_every_command_that_reads_is_here() -> None:
    assert {each.line.split()[0] for each in CALLS} == {*names()} - CHANGES - SCREENS


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.line)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_in_trouble(outcome: Outcome, trouble: str, call: Call) -> None:
    well, done = outcome["", call.line], outcome[trouble, call.line]
    assert well.status in (Status.DONE, Status.WOULD_CHANGE, call.ends), well
    assert done.took < 2 * TIMEOUT, done
    broker = "broker-a"
    address = {STOPPED: broker, KILLED: broker, MEMBER: "10.0.0.2@b", NAMESERVER: "127.0.0.1:"}[trouble]
    if trouble in call.part:
        assert done.status == (Status.PARTIAL if call.ends is None else call.ends), done
        assert address in done.out + done.err or "127.0.0.1:" in done.err, done
        assert done.out or not call.alive, done
    elif trouble in call.nothing:
        assert done.status in (Status.FAILED, Status.TIMED_OUT), done
        assert not done.out.strip() and done.err, done
    else:
        assert (done.status, done.err) == (well.status, well.err), done
    if call.ends is None:  # else it tells the trouble as what it found
        assert not list(_untrue(done.document, well.document))


CHANGING = {
    "at",
    "errors",
    "complete",
    "address",
    "file",
    "entries",
    "lastHeartbeat",
    "sends",
    "pulls",
    "inTps",
    "outTps",
}
CHANGING |= {"perSecond", "lastDay", "pageCacheLockMs", "diskUsed", "commitLogDiskUsed", "consumeQueueDiskUsed"}
CHANGING |= {f"{way}{day}" for way in ("received", "delivered", "in", "out") for day in ("Today", "Yesterday")}
"""Keys of what differs from call to call or from broker to broker, and of what says that it is a part."""


def _untrue(part: Any, whole: Any, where: str = "") -> Iterator[str]:
    """The places of figures that are neither those of the whole answer nor unknown."""
    if part is None:
        return
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        for key in part.keys() - CHANGING:
            if part.get("complete") is False and isinstance(part[key], int) and part[key] <= whole[key]:
                continue
            yield from _untrue(part[key], whole.get(key), f"{where}.{key}")
    elif isinstance(part, list) and isinstance(whole, list):
        for number, each in enumerate(part):
            if all(list(_untrue(each, other)) for other in whole):
                yield f"{where}[{number}]: {each}"
    elif part != whole:
        yield f"{where}: {part} for {whole}"
