"""Where Spark calls the connector: an error leaves it with its sentence, and without the way that it came.

Spark shows the traceback of its Python process above the sentence, with all our functions and all causes. Owns that
hardly a place of it is left. The logger ``eruca.spark`` gets the whole one at DEBUG. Errors that are none of the
connector's own pass as they are.
"""

from __future__ import annotations

import logging
from contextlib import ContextDecorator
from types import TracebackType
from typing import Final

from eruca.spark_connector.errors import SinkError, SourceError

log = logging.getLogger("eruca.spark")


class _Boundary(ContextDecorator):
    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SourceError | SinkError):
            log.debug("%s", error, exc_info=error)
            raise error.with_traceback(None) from None


boundary: Final = _Boundary()
"""Decorates a function that Spark calls; for a generator, a ``with`` around its yields."""
