"""The lines of the audit log that a server in this process leaves."""

from __future__ import annotations

import logging
import re

import pytest


class Audited:
    """What the audit log said since it was last asked."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "eruca.audit")
        self._caplog = caplog

    def lines(self) -> list[str]:
        """The events and their values, as ``logging`` gets them."""
        found = [each.getMessage() for each in self._caplog.records if each.name == "eruca.audit"]
        self._caplog.clear()
        return found

    def line(self) -> dict[str, str]:
        """The values of the only line."""
        (line,) = self.lines()
        assert line.startswith("change "), line
        return {name: one or other for name, one, other in re.findall(r" (\w+)=(?:'([^']*)'|(\S+))", line)}
