"""The trace of a message: who sent it and who consumed it, as recorded by clients with tracing.

Owns the text format of traces that Java clients write (TraceDataEncoder in 4.9.7): records end with 02, their fields
are joined by 01. An unreadable record is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from eruca.admin.client import Admin
from eruca.admin.lookups import Asked
from eruca.admin.messages import body_of, find, records_of
from eruca.admin.results.answer import Moment
from eruca.admin.results.messages import Step
from eruca.protocol.record import Record, host_text


async def trace(admin: Admin, topic: str, message_id: str) -> tuple[list[Step], Asked[list[Record]]]:
    """The steps of a message by the producer's id (12 in the topic of the traces), and what each broker answered."""
    asked = await find(admin, topic, message_id)
    found = [
        step
        for record in records_of(asked)
        for step in steps(body_of(record).decode("utf-8", "replace"), message_id, host_text(record.born_host))
    ]
    return found, asked


def steps(text: str, message_id: str, host: str) -> Iterator[Step]:
    """The steps of one message in the body of a trace message that came from ``host``."""
    for record in text.split("\x02"):
        fields = record.split("\x01")
        try:
            step = _step(fields, message_id, host)
        except (IndexError, ValueError):
            continue
        if step is not None:
            yield step


def _step(fields: list[str], message_id: str, host: str) -> Step | None:
    if fields[0] == "Pub" and fields[5] == message_id:
        succeeded = fields[12] if len(fields) == 13 else fields[13]
        return _made("Pub", fields[3], host, int(fields[1]), int(fields[10]), succeeded == "true")
    if fields[0] == "SubAfter" and fields[2] == message_id:
        at, group = (int(fields[7]), fields[8]) if len(fields) >= 9 else (0, "null")
        return _made("Sub", group, host, at, int(fields[3]), fields[4] == "true")
    return None


def _made(kind: Literal["Pub", "Sub"], group: str, host: str, at: int, ms: int, succeeded: bool) -> Step:
    return Step(kind=kind, group=group, host=host, at=Moment.at(at), ms=ms, succeeded=succeeded)
