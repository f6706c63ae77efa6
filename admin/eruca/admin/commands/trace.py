"""The trace of a message: who sent it and who consumed it, as recorded by clients with tracing.

Owns the text format of traces that Java clients write (TraceDataEncoder in 4.9.7): records end with 02, their fields
are joined by 01. An unreadable record is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

from eruca.admin.command import Job, Shown, command
from eruca.admin.errors import NotFound
from eruca.admin.messages import body_of, find, records_of
from eruca.admin.posix import Option
from eruca.admin.results.answer import Moment, errors_of
from eruca.admin.results.messages import Step, Steps
from eruca.admin.text import seconds_text
from eruca.protocol.names import TRACE_TOPIC
from eruca.protocol.record import host_text

_ROW = "%-10s %-20s %-20s %-20s %-10s %-10s"


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


@command(
    "queryMsgTraceById",
    "show who sent a message and who consumed it",
    Option("i", "msgId", "the producer's id (msgId)", required=True),
    Option("t", "traceTopic", f"the topic of the traces; default {TRACE_TOPIC}", kind="topic"),
    results=(Steps,),
)
async def query_trace(job: Job) -> Shown:
    """12 in the topic of the traces."""
    message_id, topic = job.text("i"), job.text("t", TRACE_TOPIC)
    asked = await find(job.admin, topic, message_id)
    found = [
        step
        for record in records_of(asked)
        for step in steps(body_of(record).decode("utf-8", "replace"), message_id, host_text(record.born_host))
    ]
    if not found and not asked.errors:
        raise NotFound(f"topic {topic} has no trace of the message {message_id}; do its clients write traces?")
    result = Steps(items=found, errors=errors_of(asked.errors, "its traces are missing"))
    return Shown(result, partial(_print_steps, job, found))


def _print_steps(job: Job, found: list[Step]) -> None:
    for step in found:
        if step.kind == "Pub":
            _print(job, "Pub", "#ProducerGroup", "#SendTime", [step])
    for group in dict.fromkeys(step.group for step in found if step.kind == "Sub"):
        consumed = [step for step in found if step.kind == "Sub" and step.group == group]
        _print(job, "Sub", "#ConsumerGroup", "#ConsumerTime", consumed)


def _print(job: Job, kind: str, group_title: str, time_title: str, found: list[Step]) -> None:
    job.row(_ROW, "#Type", group_title, "#ClientHost", time_title, "#CostTimes", "#Status")
    for step in found:
        host, status = step.host.rpartition(":")[0], "success" if step.succeeded else "failed"
        job.row(_ROW, kind, step.group, host, seconds_text(step.at.ms), f"{step.ms}ms", status)
    job.line()
