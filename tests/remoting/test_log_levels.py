"""The levels of a log: what a text of logLevel means, which rule counts for a logger, and when it is over."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from eruca.remoting.log_levels import LogLevels
from eruca.remoting.log_settings import LogSettings
from eruca.remoting.settings import BadSetting, change


@dataclass(kw_only=True)
class Config:
    log: LogSettings = field(default_factory=LogSettings)


def test_the_most_specific_rule_counts() -> None:
    levels = LogLevels()
    assert (levels.of("eruca.broker"), levels.least) == (logging.INFO, logging.INFO)
    levels.set("warn, DEBUG@eruca.broker.store,ERROR@eruca.broker.store.retention")
    assert levels.of("eruca.nameserver") == logging.WARNING
    assert levels.of("eruca.broker.store") == logging.DEBUG
    assert levels.of("eruca.broker.store.retention") == logging.ERROR
    assert levels.of("eruca.broker.stores") == logging.WARNING
    assert levels.least == logging.DEBUG
    levels.set("ERROR")
    assert levels.of("eruca.broker.store") == levels.least == logging.ERROR


def test_a_rule_ends_when_its_time_is_over() -> None:
    now, changes = 0.0, []
    levels = LogLevels(lambda: changes.append(now), lambda: now)
    levels.set("INFO,DEBUG@eruca.broker/10m,ERROR/30s")
    assert (levels.of("eruca.broker"), levels.of("eruca.nameserver")) == (logging.DEBUG, logging.INFO)
    now = 30.0
    assert levels.expire() == ["ERROR/30s"]
    assert levels.of("eruca.nameserver") == logging.INFO
    now = 599.0
    assert levels.expire() == [] and levels.of("eruca.broker") == logging.DEBUG
    now = 600.0
    assert levels.expire() == ["DEBUG@eruca.broker/10m"]
    assert (levels.of("eruca.broker"), levels.least) == (logging.INFO, logging.INFO)
    assert changes == [0.0, 30.0, 600.0]


def test_a_logger_of_others_has_the_level_that_names_it_and_no_other() -> None:
    levels = LogLevels()
    levels.set("DEBUG,DEBUG@asyncio")
    assert logging.getLogger("asyncio").level == logging.DEBUG
    assert logging.getLogger("eruca.broker").level == logging.NOTSET
    levels.set("DEBUG")
    assert logging.getLogger("asyncio").level == logging.NOTSET


@pytest.mark.parametrize(
    "text",
    ["", "LOUD", "DEBUG@", "DEBUG@eruca broker", "DEBUG/10", "DEBUG/10d", "INFO,", "DEBUG@a/10m@b", "INFO;DEBUG"],
)
def test_other_texts_are_refused(text: str) -> None:
    config = Config()
    with pytest.raises(BadSetting, match=r"logLevel: .* is not allowed; write DEBUG, INFO, WARN or ERROR"):
        change(config, {"logLevel": text})
    assert config.log.log_level == "INFO"


@pytest.mark.parametrize("text", ["DEBUG", "info", " WARN , error@asyncio/2H", "DEBUG@eruca.broker.replication/10m"])
def test_allowed_texts(text: str) -> None:
    config = Config()
    assert change(config, {"logLevel": text}) == {"logLevel": text}
    LogLevels().set(config.log.log_level)
