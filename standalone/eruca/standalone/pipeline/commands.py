"""The group ``eruca pipeline``: each command asks for its options, runs a pipeline, and says what it found."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from eruca.standalone.pipeline.pictures import bars
from eruca.standalone.pipeline.running import FOUND, Run, common


@click.group()
def pipeline() -> None:
    """What one wants to know of, and do with, many messages at once (docs/pipelines.md)."""


@pipeline.command()
@common
@click.option("--topic", "topics", multiple=True, required=True, help="A topic. Repeatable.")
@click.option("--group", "groups", multiple=True, required=True, help="A group that consumes them. Repeatable.")
@click.option("--max-behind", default=0, show_default=True, help="Messages that a group may be behind.")
@click.option("--max-dead", type=int, help="Dead letters that a group may have. [any]")
def audit(run: Run, max_behind: int, max_dead: int | None, **options: Any) -> int | None:
    """Hold what producers stored against what groups consumed; exits with 3 when a group is behind."""
    from eruca.spark_connector.pipelines import audit as work

    done = work(name_server=run.name_server, access=run.access, **options)
    table = Table("topic", "group", "stored", "consumed", "waiting", "lost", "retrying", "dead")
    for each in done.groups:
        counts = (each.stored, each.consumed, each.behind, each.lost, each.retrying, each.dead)
        table.add_row(each.topic, each.group, *(f"{count:,}" for count in counts))
    run.console.print(table)
    for each in done.groups:
        if each.behind:
            run.say(f"What {each.group} has not consumed of {each.topic}, by queue:")
            waiting = {f"{line.queue.broker_name}:{line.queue.queue_id}": line.behind for line in each.queues}
            run.say(bars({queue: count for queue, count in waiting.items() if count}))
    faults = done.faults(behind=max_behind, dead=max_dead)
    for sentence in faults:
        run.say(sentence)
    if not faults:
        run.say("Every group has consumed what it should.")
    return FOUND if faults else None
