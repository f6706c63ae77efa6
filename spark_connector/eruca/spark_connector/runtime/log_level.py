"""The level of the log in Spark's Python processes: that of the program which registered the format.

Queries are planned in processes of Spark's own, in which nobody configures logging. Owns the variable that takes the
level there, and what is done with it. A process in which logging is configured only gets the level.
"""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping
from typing import Final

VARIABLE: Final = "ERUCA_SPARK_LOG_LEVEL"
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
log = logging.getLogger("eruca.spark")


def pass_on(environment: MutableMapping[str, str]) -> None:
    """Put the level of this process into the environment of Spark's processes, if it lets more through than usual."""
    level = log.getEffectiveLevel()
    if level < logging.WARNING:
        environment[VARIABLE] = str(level)
    else:
        environment.pop(VARIABLE, None)


def take_over() -> None:
    """Log at the level that was passed on: to the standard error, which Spark shows with its own."""
    level = os.environ.get(VARIABLE)
    if level is None or log.level == int(level):
        return
    log.setLevel(int(level))
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        log.addHandler(handler)
