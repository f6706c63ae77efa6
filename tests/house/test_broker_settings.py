"""The settings that a file of mqadmin may have are those of the broker that change at run time, with its defaults."""

from eruca.admin.results.broker_settings import APACHE, DEFAULTS
from eruca.broker.config import BrokerConfig
from eruca.remoting.settings import settings_of
from tests.house.tree import ROOT

OF_ONE_BROKER = {"brokerId", "brokerRole", "startAcceptSendRequestTimeStamp"}
"""They make a broker this one, or are a point of time."""


def test_the_table_is_that_of_the_broker() -> None:
    config = BrokerConfig()
    live = {each.key: each.text(config) for each in settings_of(BrokerConfig).values() if each.rules.live}
    assert {name: text for name, text in live.items() if name not in OF_ONE_BROKER} == DEFAULTS


def test_where_apache_has_another_default_the_table_has_it() -> None:
    golden = ROOT / "tests" / "golden" / "settings" / "apache-4.9.7.txt"
    usual = dict(line.partition(" ")[2].split("=", 1) for line in golden.read_text().splitlines() if "=" in line)
    table = {name: text for name, text in (DEFAULTS | APACHE).items() if name in usual}
    assert table == {name: usual[name] for name in table}
    assert len(table) > 30
