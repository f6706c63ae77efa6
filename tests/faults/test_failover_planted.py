"""Groups of brokers with a planted fault each: the run of ``test_failover_run`` finds them out, by the right judge.

A fault replaces a part of the product in each broker's process, as soon as that begins. What happens to the group is
what the fault needs to show itself.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.test_failover_run import Harm, isolate, kill_having, kill_lacking, switch, watched
from tests.support.etcd import needs_etcd
from tests.support.failover_writers import RESETS
from tests.support.programme import ENOUGH, LONG, WHY

pytestmark = [needs_etcd, pytest.mark.processes, pytest.mark.slow, ENOUGH]

AT_ONCE = """
async def at_once(broker, epoch, *, on_disk=False):
    pass

def reply_at_once(broker, epoch, reply):
    return reply
"""


class Planted(NamedTuple):
    """What is wrong with the brokers, what happens to them, the kinds of faults that must be found, how many of the
    changes of offsets are resets, and what a broker says that notices it itself and ends, if one can."""

    fault: str
    harms: list[Harm]
    kinds: str
    resets: float = RESETS
    noticed: str = ""


FAULTS = {
    "messages are given out as soon as they are stored": Planted(
        """
        from eruca.broker.store.store import Store

        Store.visible_limit = property(lambda self: None, lambda self, value: None)
        Store.show = lambda self, limit: self.drain()
        """,
        [isolate],
        "gone|changed",
    ),
    "sends are answered before all of the set have them": Planted(
        """
        from eruca.broker.services.failover.confirmation import Confirmation

        Confirmation.durable = lambda self, end_offset: None
        """,
        [kill_lacking] * 3,
        "lost|twice",
    ),
    "the confirm offset is the end of the master's log": Planted(
        """
        from eruca.broker.failover import in_sync
        from eruca.broker.services.failover.driver import Driver

        Driver._waits = property(lambda self: False, lambda self, value: None)
        in_sync.confirm_offset = lambda confirmed, own, master, members, replicas: max(confirmed, own)
        """,
        [kill_lacking] * 3,
        "twice",
    ),
    "topics are answered before all of the set have them": Planted(
        AT_ONCE + "from eruca.broker.handlers import topics; topics.all_confirmed = at_once",
        [kill_lacking] * 3,
        "topic",
    ),
    "groups are answered before all of the set have them": Planted(
        AT_ONCE + "from eruca.broker.handlers import groups; groups.all_confirmed = at_once",
        [kill_lacking] * 3,
        "group",
    ),
    "offsets are answered before all of the set have them": Planted(
        AT_ONCE + "from eruca.broker.handlers import offsets; offsets.confirmed = reply_at_once",
        [kill_lacking] * 3,
        "offset",
    ),
    "resets are answered before all of the set have them": Planted(
        AT_ONCE + "from eruca.broker.handlers import resets; resets.all_confirmed = at_once",
        [kill_lacking] * 4,
        "offset",
        resets=0.5,
    ),
    "locks are answered before all of the set have them": Planted(
        AT_ONCE + "from eruca.broker.handlers import clients; clients.confirmed = reply_at_once",
        [kill_lacking] * 4,
        "taken|locked",
    ),
    "locks are not copied": Planted(
        "from eruca.broker.state.locks import Locks; Locks.take_part = lambda self, part: None",
        [switch] * 4,
        "taken|locked",
    ),
    "ends of transactions are answered before all of the set have them": Planted(
        """
        from eruca.broker.handlers import transactions

        transactions._safe = lambda broker, end_offset, reply: reply
        """,
        [kill_lacking] * 3,
        "missing",
    ),
    "a new master knows of no decided transaction": Planted(
        "from eruca.broker.services import halves; halves.closed_by = lambda record: ()", [kill_having] * 3, "again"
    ),
    "a broker that is elected takes what it saved of delays for all that was delivered": Planted(
        """
        from eruca.broker.services import delays

        found = delays.delivered

        def delivered(store, mark, levels, *more):
            return found(store, mark, levels, *more)._replace(levels=dict(levels))

        delays.delivered = delivered
        """,
        [kill_lacking] * 3,
        "again",
    ),
    "logs are cut by their length": Planted(
        """
        from eruca.broker.failover import epochs

        epochs.cut_point = lambda mine, my_end, theirs, their_end: min(my_end, their_end)
        """,
        [isolate],
        "the",
        noticed="|the log cannot be cut off as the master's is: no record ends at",
    ),
}


SHORT = ("messages are given out as soon as they are stored", "offsets are answered before all of the set have them")
"""What the short form of the tests plants."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SHORT else pytest.mark.skipif(not LONG, reason=WHY)) for name in FAULTS],
)
async def test_a_planted_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    planted = FAULTS[name]
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(planted.fault))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AssertionError, match=rf"faults: .*'({planted.kinds}):?'{planted.noticed}") as found:
        async with watched(tmp_path, 2, f"planted: {name}", resets=planted.resets) as run:
            for harm in planted.harms:
                await run.round(harm.__name__, harm)
    print(str(found.value).splitlines()[0])
