"""The configuration of two masters and two slaves, parsed by the daemons."""

from __future__ import annotations

import re

import pytest

from eruca.broker.config import BrokerConfig, complete
from eruca.remoting.command_line import command_line
from tests.house.tree import ROOT

DEPLOY = ROOT / "deploy"
PAIRS = {("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)}
FILES = ("broker-a", "broker-a-s", "broker-b", "broker-b-s")


def role_of(config: BrokerConfig) -> tuple[str, int]:
    """Name and id, where the role fits them."""
    complete(config)
    assert config.is_slave == (config.broker_id > 0)
    assert len(config.nameservers) == 2
    return config.broker_name, config.broker_id


def test_four_files_make_two_pairs() -> None:
    configs = []
    for name in FILES:
        start = command_line(BrokerConfig, "mqbroker", ["-c", str(DEPLOY / "conf" / "2m-2s" / f"{name}.conf")], {})
        assert start.warnings == []
        configs.append(start.config)
    assert {role_of(config) for config in configs} == PAIRS
    assert len({config.broker_ip1 for config in configs}) == 4


def service(name: str) -> str:
    """The lines of one service in the compose file."""
    text = (DEPLOY / "compose-2m-2s.yaml").read_text()
    services = text.partition("\nservices:\n")[2].partition("\nnetworks:\n")[0]
    [block] = re.findall(rf"(?ms)^  {name}:\n(.*?)(?=^\S|^  \S|\Z)", services)
    return str(block)


def address(name: str) -> str:
    """Where a service is in its network."""
    [found] = re.findall(r"ipv4_address: ([\d.]+)", service(name))
    return str(found)


def variables(text: str) -> dict[str, str]:
    """The lines that set a variable."""
    return {name: value.strip('"') for name, value in re.findall(r"(?m)^ +((?:ERUCA|NAMESRV)_\w+): (.+)$", text)}


def test_the_compose_file_starts_the_same() -> None:
    common = (DEPLOY / "compose-2m-2s.yaml").read_text().partition("\nservices:\n")[0]
    configs = []
    for name in FILES:
        start = command_line(BrokerConfig, "mqbroker", [], {**variables(common), **variables(service(name))})
        assert start.warnings == []
        assert start.config.broker_ip1 == address(name)
        configs.append(start.config)
    assert {role_of(config) for config in configs} == PAIRS
    assert configs[0].nameservers == [f"{address(f'namesrv-{number}')}:9876" for number in (1, 2)]


@pytest.mark.parametrize("name", FILES)
def test_every_volume_is_one_brokers_own(name: str) -> None:
    text = (DEPLOY / "compose-2m-2s.yaml").read_text()
    assert len(re.findall(rf'\["{name}:/var/lib/eruca"\]', text)) == 1
