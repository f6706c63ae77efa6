"""The page's table of all limits is that of the code, and every metric of a limit is in it and is there."""

from __future__ import annotations

from pathlib import Path

from eruca.broker.app import BrokerApp
from eruca.broker.config import BrokerConfig
from eruca.nameserver.app import Nameserver
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.connection_limits import ConnectionSettings
from eruca.remoting.metrics import Metrics
from eruca.remoting.quotas import QuotaSettings
from eruca.remoting.settings import settings_of
from tests.support.limits import LIMITS, PAGE, page


def test_the_table_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "write it by: python -m tests.support.limits"


def test_every_setting_of_a_limit_is_in_it() -> None:
    keys = {*settings_of(ConnectionSettings), *settings_of(QuotaSettings)}
    keys |= {key for key in settings_of(BrokerConfig) if key.startswith("quota") or key.endswith("NumByPrefix")}
    assert keys <= {limit.key for limit in LIMITS}


async def most(metrics: Metrics) -> dict[str, int]:
    """What the limits of a daemon allow, by their names."""
    [source] = [each for each in metrics.sources if each.families[0].name == "eruca_limit"]
    return {
        labels[0]: int(value) for labels, value in (await metrics.rows(source))[0] if isinstance(value, float | int)
    }


async def names(metrics: Metrics) -> tuple[set[str], set[str]]:
    """The limits of a daemon, and the names of all its metrics."""
    limits: set[str] = set()
    for source in metrics.sources:
        if source.families[0].name == "eruca_limit":
            limits |= {labels[0] for labels, _ in (await metrics.rows(source))[0]}
    return limits, {family.name for family in metrics.families}


def daemons(folder: Path) -> tuple[Metrics, Metrics]:
    """Those of a broker and of a nameserver."""
    config = BrokerConfig(broker_ip1="127.0.0.1")
    config.store.store_path_root_dir = str(folder / "store")
    return BrokerApp(config).broker.metrics, Nameserver(NamesrvConfig(rocketmq_home=str(folder))).metrics


async def test_daemons_limit_what_the_table_says(tmp_path: Path) -> None:
    broker, nameserver = [await most(metrics) for metrics in daemons(tmp_path)]
    fixed = {limit.metric: limit.value for limit in LIMITS if limit.value.replace(",", "").isdecimal() and limit.metric}
    assert fixed == {name: f"{(broker | nameserver)[name]:,}" for name in fixed}
    assert {"held_pulls", "held_pulls_per_connection", "locks", "offsets", "slaves"} <= fixed.keys()


async def test_the_metrics_are_those_of_the_daemons(tmp_path: Path) -> None:
    broker, nameserver = [await names(metrics) for metrics in daemons(tmp_path)]
    named = {limit.metric for limit in LIMITS if limit.metric}
    assert {name for name in named if not name.startswith("eruca_")} == broker[0] | nameserver[0]
    assert {name for name in named if name.startswith("eruca_")} <= broker[1] & nameserver[1]
