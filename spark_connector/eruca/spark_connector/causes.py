"""The sentence that says why a query failed, out of what Spark makes of it.

Spark puts the error of a task, or of the source's planning, into an error of its own: the traceback of its Python
process, SQLSTATE, the plan of a stream, the trace of its Java side, in an order that differs from version to version.
The sentence is in it, but not at its end. Owns how it is found. Knows texts alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eruca.spark_connector.errors import BadOption, GroupReset, SinkError, SourceError

_OWN: Final = {each.__name__: each for each in (BadOption, GroupReset, SourceError, SinkError)}
_CAUSE = re.compile(rf"^(?:[\w.]+\.)?({'|'.join(_OWN)}|OSError): (.+)$", re.MULTILINE)
_JAVA = re.compile(r"^: (?:[\w.$]+\.)?(\w+): (.+)$", re.MULTILINE)
_OTHER = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception): .+)$", re.MULTILINE)


def cause_of(error: BaseException) -> str:
    """The sentence: that of Eruca's own error, however deep Spark has wrapped it, else the nearest there is."""
    if isinstance(error, SourceError | SinkError):
        return str(error)
    text = str(error)
    found = _CAUSE.findall(text)
    if found:
        return str(found[-1][1]).strip()
    if others := _OTHER.findall(text):  # the end of a traceback in one of Spark's Python processes
        return str(others[-1]).strip()
    if java := _JAVA.search(text):  # "An error occurred while calling o64.start." and, in the next line, which
        return f"{java[1]}: {java[2].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def clear_errors() -> Iterator[None]:
    """What fails in the block with an error of Eruca's inside fails with that error: its sentence is the last line.

    For ``query.awaitTermination()`` and for actions such as ``save()``. Spark's own error is kept as ``__cause__``;
    one that has none of Eruca's inside is left as it is.
    """
    try:
        yield
    except Exception as error:
        found = [] if isinstance(error, SourceError | SinkError) else _CAUSE.findall(str(error))
        own = _OWN.get(found[-1][0]) if found else None
        if own is None:
            raise
        raise own(found[-1][1].strip()) from error
