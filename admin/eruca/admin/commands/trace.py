"""The command that shows the trace of a message."""

from __future__ import annotations

from functools import partial

from eruca.admin.command import Job, Shown, command
from eruca.admin.errors import NotFound
from eruca.admin.posix import Option
from eruca.admin.results.answer import errors_of
from eruca.admin.results.messages import Step, Steps
from eruca.admin.results.traces import trace
from eruca.admin.text import seconds_text
from eruca.protocol.names import TRACE_TOPIC

_ROW = "%-10s %-20s %-20s %-20s %-10s %-10s"


@command(
    "queryMsgTraceById",
    Option("i", "msgId", "the producer's id (msgId)", required=True),
    Option("t", "traceTopic", f"the topic of the traces; default {TRACE_TOPIC}", kind="topic"),
    results=(Steps,),
)
async def query_trace(job: Job) -> Shown:
    """12 in the topic of the traces."""
    message_id, topic = job.text("i"), job.text("t", TRACE_TOPIC)
    found, asked = await trace(job.admin, topic, message_id)
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
