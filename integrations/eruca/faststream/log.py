"""The logger of a broker, as FastStream makes it for its own: a column for the topic and one for the group."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo

_ID_WIDTH, _LONGEST_ID = 32, 56
"""Characters of a message id: with an IPv4 and an IPv6 address. Only the end differs in the messages of a producer."""


class LoggerColumns(DefaultLoggerStorage):
    """Makes the logger, its columns as wide as the longest name."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 4, "group": 0}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Make room for the names of a subscriber."""
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """The logger, made once."""
        logger = self._get_logger_ref()
        if logger is None:
            columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items() if width)
            logger = get_broker_logger(
                name="rocketmq",
                default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=_LONGEST_ID,
                fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-{_ID_WIDTH}s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


make_logger = partial(make_logger_state, default_storage_cls=LoggerColumns)
"""The state of a broker's logger."""
