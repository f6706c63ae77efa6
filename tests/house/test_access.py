"""Access control knows every request: each code that a daemon serves has a rule, and each rule is of such a code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eruca.broker.handlers import TABLES
from eruca.broker.handlers.access_rules import RULES as BROKER_RULES
from eruca.nameserver.access_rules import RULES as NAMESERVER_RULES
from eruca.nameserver.handlers import routes
from eruca.protocol.api import ENDPOINTS
from eruca.remoting.access.rules import ROLES, Need, Rule
from tests.house.tree import ROOT

OF_THE_MESSAGE = {33}
"""The handler asks whether the requester may read the message that it finds."""


def test_every_request_of_the_broker_has_a_rule() -> None:
    assert {code for table in TABLES for code in table.handlers} == set(BROKER_RULES)


def test_every_request_of_the_nameserver_has_a_rule() -> None:
    assert set(routes.handlers) == set(NAMESERVER_RULES)


def test_rules_name_fields_that_the_requests_have() -> None:
    """A field with a wrong name would be found with the first request only."""
    fields = {int(endpoint.code): set(endpoint.ask.__struct_fields__) for endpoint in ENDPOINTS}
    for rules in (BROKER_RULES, NAMESERVER_RULES):
        for code, rule in rules.items():
            assert {name for name in (rule.topic, rule.group) if name} <= fields[code], code


def test_every_rule_checks_something() -> None:
    for rules in (BROKER_RULES, NAMESERVER_RULES):
        silent = {code for code, rule in rules.items() if not _checks(rule)}
        assert silent <= OF_THE_MESSAGE, "a rule without a role and without names lets every account in"


def _checks(rule: Rule[Any]) -> bool:
    return rule.need in ROLES or bool(rule.topic or rule.group or rule.named)


def test_the_documentation_has_the_table() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    start = page.index("### What a request needs")
    rows = [line for line in page[start:].splitlines() if line.startswith("| ")][1:]
    assert rows[: len(_rows())] == _rows()


def _rows() -> list[str]:
    kinds = {(rule.need, rule.also) for rules in (BROKER_RULES, NAMESERVER_RULES) for rule in rules.values()}
    needs = list(Need)
    ordered = sorted(kinds, key=lambda kind: (needs.index(kind[0]), len(kind[1])))
    return [
        f"| {_words(need, also)} | {_codes(BROKER_RULES, need, also)} | {_codes(NAMESERVER_RULES, need, also)} |"
        for need, also in ordered
    ]


def _words(need: Need, also: frozenset[Need]) -> str:
    return ", or ".join([need.value, *sorted(role.value for role in also)])


def _codes(rules: Mapping[int, Rule[Any]], need: Need, also: frozenset[Need]) -> str:
    found = sorted((int(code), rule) for code, rule in rules.items() if (rule.need, rule.also) == (need, also))
    return ", ".join(f"**{code}**" if rule.always else str(code) for code, rule in found)
