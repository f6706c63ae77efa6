"""The configuration files in deploy/, parsed by the daemons."""

from __future__ import annotations

import re

import pytest

from eruca.broker.config import BrokerConfig
from eruca.nameserver.config import NamesrvConfig
from eruca.protocol import properties
from eruca.remoting.command_line import command_line
from eruca.remoting.settings import settings_of
from tests.house.tree import ROOT

CONF = ROOT / "deploy" / "conf"
KINDS = {"broker.conf": BrokerConfig, "namesrv.conf": NamesrvConfig}


@pytest.mark.parametrize("name", KINDS)
def test_the_daemon_reads_its_file_without_a_warning(name: str) -> None:
    kind: type[object] = KINDS[name]
    start = command_line(kind, name, ["-c", str(CONF / name)], {})

    assert start.warnings == []


@pytest.mark.parametrize("name", KINDS)
def test_a_line_that_is_commented_out_names_a_key_that_exists(name: str) -> None:
    outside = re.sub(r"(?m)^#(\w+=)", r"\1", (CONF / name).read_text())

    assert properties.parse(outside).keys() <= settings_of(KINDS[name]).keys()


@pytest.mark.parametrize("name", KINDS)
def test_every_daemon_writes_where_its_unit_lets_it(name: str) -> None:
    unit = (ROOT / "deploy" / "systemd" / f"eruca-{name.removesuffix('.conf')}.service").read_text()
    [folder] = re.findall(r"^StateDirectory=(\S+)$", unit, re.MULTILINE)
    known = settings_of(KINDS[name])
    values = properties.parse((CONF / name).read_text())

    paths = [text for key, text in values.items() if known[key].rules.path]
    assert paths
    assert [path for path in paths if not path.startswith(f"/var/lib/{folder}/")] == []
