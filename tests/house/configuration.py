"""The reference of all settings, docs/configuration.md, made of the fields: ``make configuration`` writes it.

Owns the page's form. What a key is, allows and means stands at its field; what it is in Apache's classes is in
tests/golden/settings, which tests/compat compares with their jars.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from functools import cache
from pathlib import Path

from eruca.broker.config import BrokerConfig
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.settings import Setting, settings_of
from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "configuration.md"
COMMAND = "make configuration"
APACHE_DEFAULTS = ROOT / "tests" / "golden" / "settings" / "apache-4.9.7.txt"
CLASSES = {
    BrokerConfig: ("BrokerConfig", "MessageStoreConfig", "NettyServerConfig", "NettyClientConfig"),
    NamesrvConfig: ("NamesrvConfig", "NettyServerConfig"),
}
"""Apache's classes that a daemon's file sets."""
ELSEWHERE: dict[type, dict[str, str]] = {
    BrokerConfig: {
        "listenPort": "10911",
        "diskSpaceCleanForciblyRatio": "0.85, a property of Java",
        "diskSpaceWarningLevelRatio": "0.90, a property of Java",
        "rebalanceLockMaxLiveTime": "60000, a property of Java",
    },
    NamesrvConfig: {"listenPort": "9876"},
}
"""Defaults that BrokerStartup and NamesrvStartup set, and those of Java's system properties."""
HEAD = f"""# Configuration

All keys of `mqbroker -c broker.conf` and `mqnamesrv -c namesrv.conf`. `{COMMAND}` makes this page of the code, and a
test compares both. [Operations](operations.md#before-a-start) says how a configuration is checked, and which of several
values counts.

- **Key**: in the file, and for `--set KEY=VALUE`. **Variable**: the same in the environment, in capitals; a second one
  is RocketMQ's own.
- **Allowed**: a number without a bound has 64 bits. Texts have no control characters.
- **4.9.7**: the default of Apache RocketMQ 4.9.7; "-" for keys that it does not have.
- **Live**: it changes while the daemon runs, by request 25 (`mqadmin updateBrokerConfig`) at a broker, by 318
  (`updateNamesrvConfig`) at a nameserver, and in the file by SIGHUP. A `secret` does not, and is never shown; the key
  with `File` at its end names a
  file that holds the value.

Times are in milliseconds and sizes in bytes unless the text says otherwise.
"""


@cache
def meanings(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass, on one line; empty where there is none."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(part):
            continue
        [declared] = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(declared, ast.ClassDef)
        for field, after in zip(declared.body, [*declared.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[field.target.id] = _text(after)
    return found


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split()).replace("``", "`")
    return ""


def meaning(kind: type, item: Setting) -> str:
    """What a setting means."""
    for name in item.place[:-1]:
        kind = _types(kind)[name]
    return meanings(kind)[item.place[-1]]


@cache
def _types(kind: type) -> dict[str, type]:
    return typing.get_type_hints(kind)


def apache(kind: type) -> dict[str, str]:
    """Apache's defaults by key."""
    lines = [line.partition(" ") for line in APACHE_DEFAULTS.read_text().splitlines()]
    texts = [text.partition("=") for name, _, text in lines if name in CLASSES[kind]]
    return {key: value for key, _, value in texts} | ELSEWHERE[kind]


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_daemon(BrokerConfig, "mqbroker"), *_daemon(NamesrvConfig, "mqnamesrv")])


def _daemon(kind: type, program: str) -> list[str]:
    known, theirs = settings_of(kind), apache(kind)
    lines = [f"## {program}", "", *_row("Key", "Variable", "Allowed", "Default", "4.9.7", "Live", "Meaning", head=True)]
    for key, item in known.items():
        if item.rules.effect:
            live = "secret" if item.rules.secret else "yes" if item.rules.live else "no"
            default = _default(kind, item)
            lines += _row(
                f"`{key}`", _variables(item), _allowed(item), default, theirs.get(key, "-"), live, meaning(kind, item)
            )
    idle = {key: item for key, item in known.items() if not item.rules.effect}
    if idle:
        lines += ["", f"### Without effect in {program}", "", "Accepted and shown, so that existing files work:", ""]
        lines += _row("Key", "Allowed", "Default", "4.9.7", "With another value", head=True)
        for key, item in idle.items():
            warned = f"a warning: {item.rules.unmet}" if item.rules.unmet else "nothing changes"
            lines += _row(f"`{key}`", _allowed(item), _default(kind, item), theirs.get(key, "-"), warned)
    missing = sorted(theirs.keys() - known.keys())
    if missing:
        lines += ["", f"Keys of 4.9.7 that {program} does not know, and warns about: {', '.join(missing)}."]
    return [*lines, ""]


def _row(*cells: str, head: bool = False) -> list[str]:
    row = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    return [row, "|" + "---|" * len(cells)] if head else [row]


def _variables(item: Setting) -> str:
    own = f", `{item.rules.environment}`" if item.rules.environment else ""
    return f"`{item.variable}`{own}"


def _allowed(item: Setting) -> str:
    return item.allowed() + (", or empty" if item.optional else "")


def _default(kind: type, item: Setting) -> str:
    return item.text(kind()).replace(str(Path.home()), "(home)") or "(empty)"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
