"""The defaults of Apache's configuration classes, as docs/configuration.md shows them, are those of its jars."""

from __future__ import annotations

import subprocess

from tests.house.configuration import APACHE_DEFAULTS
from tests.support.java import SOURCES, jars

OF_THE_MACHINE = {
    "brokerIP1": "(the machine's address)",
    "brokerIP2": "(the machine's address)",
    "brokerName": "(the machine's name)",
    "endTransactionThreadPoolNums": "(by the number of cores)",
    "putMessageFutureThreadPoolNums": "(by the number of cores)",
    "sendMessageThreadPoolNums": "(by the number of cores)",
    "rocketmqHome": "($ROCKETMQ_HOME)",
}
KEYS = {"isEnableBatchPush": "enableBatchPush"}
"""Fields with another name than the setter, which makes the key."""


def line(printed: str) -> str:
    """A printed default as the page's list has it."""
    name, _, value = printed.partition("=")
    kind, _, key = name.partition(" ")
    key = KEYS.get(key, key)
    return f"{kind} {key}={OF_THE_MACHINE.get(key, value).replace('/HOME', '(home)')}"


def test_the_defaults_are_apaches() -> None:
    command = ["java", "-Duser.home=/HOME", "-Drocketmq.home.dir=/RMQ", "-cp", f"{jars('4.9.7')}/*"]
    printed = subprocess.run(
        [*command, str(SOURCES / "settings" / "Settings.java")], capture_output=True, text=True, check=True
    ).stdout

    assert sorted(map(line, printed.splitlines())) == sorted(APACHE_DEFAULTS.read_text().splitlines())
