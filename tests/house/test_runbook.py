"""The runbook and the alerts: each alert has a section, and every metric in a query exists."""

from __future__ import annotations

import json
import re

import yaml

from tests.house.tree import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
(GROUP,) = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"]
_SUFFIXES = re.compile("_(bucket|count|sum)$")


def metrics() -> set[str]:
    """The names of metrics in the sources of the daemons."""
    found: set[str] = {"up"}
    for root in ("broker", "nameserver", "remoting"):
        for file in (ROOT / root).rglob("*.py"):
            found |= set(re.findall(r'"((?:rocketmq|eruca|process)_[a-z_0-9]+)"', file.read_text()))
    return found


def named(query: str) -> set[str]:
    """The metrics that a query names."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}', "", query)
    return {_SUFFIXES.sub("", name) for name in re.findall(r"\b(?:up|(?:rocketmq|eruca|process)_[a-z_0-9]+)\b", bare)}


def test_every_metric_of_an_alert_exists() -> None:
    for rule in GROUP["rules"]:
        assert named(rule["expr"]), rule["alert"]
        assert named(rule["expr"]) <= metrics(), rule["alert"]


def test_every_metric_of_the_board_exists() -> None:
    board = json.loads((MONITORING / "grafana" / "dashboards" / "eruca.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 15
    for query in queries:
        assert named(query), query
        assert named(query) <= metrics(), query


def test_each_alert_has_its_section_and_each_section_names_its_alerts() -> None:
    sections = dict(re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", RUNBOOK))
    for rule in GROUP["rules"]:
        page, _, section = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/runbook.md"
        assert rule["alert"] in sections[section]
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    without = set(sections) - {rule["annotations"]["runbook"].partition("#")[2] for rule in GROUP["rules"]}
    assert without == set()
