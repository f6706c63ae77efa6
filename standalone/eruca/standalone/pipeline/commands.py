"""The group ``eruca pipeline``: each command parses its options, runs a pipeline, and prints the result."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import click

from eruca.standalone.pipeline.findings import audit, rollup, triage
from eruca.standalone.pipeline.run import Run, common, end, perform


@click.group()
def pipeline() -> None:
    """Archive, replay, roll up, triage and audit messages with Spark (docs/pipelines.md)."""


@pipeline.command()
@common
@click.option("--topic", "topics", multiple=True, help="A topic to archive. Repeatable.")
@click.option("--pattern", help="Instead of --topic: a regular expression for the whole names of topics.")
@click.option("--to", required=True, metavar="FOLDER", help="The archive: a folder, or a URL that Spark can write to.")
@click.option("--since", "start", help="The first run starts with messages from then on (ms, ISO 8601, or 2h ago: 2h).")
@click.option("--rows-per-file", default=1_000_000, show_default=True, help="Rows of a Parquet file at most.")
@click.option("--rows-per-batch", type=int, help="Messages of a batch at most. [as --rows-per-file]")
@click.option("--checkpoint", metavar="FOLDER", help="The folder of the archive's progress. [FOLDER/_checkpoint]")
@click.option("--group", help="A consumer group whose offsets show the archive's progress (mqadmin consumerProgress).")
@click.option("--until-stopped", is_flag=True, help="Run until Ctrl-C or SIGTERM.")
@click.option(
    "--interval", default="10 seconds", show_default=True, help="With --until-stopped: the time between batches."
)
@click.option(
    "--skip-lost", is_flag=True, help="Continue although the broker has deleted messages that are not archived yet."
)
def archive(run: Run, until_stopped: bool, skip_lost: bool, **options: Any) -> None:
    """Append the new messages of topics to Parquet files by topic and day; a later run continues where it stopped."""
    from eruca.spark_connector.pipelines import archive as work
    from eruca.spark_connector.pipelines.units import spell_bytes

    run.go_on = "Run it again: it continues where it stopped."
    done = perform(run, work, until_stopped=until_stopped, fail_on_data_loss=not skip_lost, **options)
    if not done.messages:
        new = "No message was" if run.signals.number is not None else "Nothing is new, no message was"
        run.say(f"{new} added to {done.to}.")
        return
    run.say(
        f"{done.messages:,} messages of {_count(len(done.topics), 'topic')} were added to {done.to} "
        f"in {done.seconds:.1f} s: {_count(done.files, 'file')}, {spell_bytes(done.size)}."
    )
    run.bars(done.topics)
    if len(done.days) > 1:
        run.bars(dict(sorted(done.days.items())))


@pipeline.command()
@common
@click.option("--topic", required=True, help="The topic whose messages are sent again.")
@click.option("--to", help="The topic that gets them; created if it does not exist.")
@click.option("--group", help="Instead of --to: the only group whose consumers get them.")
@click.option("--archive", metavar="FOLDER", help="Read them from an archive instead of the topic.")
@click.option("--since", "start", help="Messages stored from then on (ms, ISO 8601, or 2h ago: 2h). [the beginning]")
@click.option("--until", "end", help="And before then. [now]")
@click.option("--tag", "tags", multiple=True, help="Only messages with this tag. Repeatable.")
@click.option("--key", "keys", multiple=True, help="Only messages with this key. Repeatable.")
@click.option("--rate", type=float, help="Messages per second at most. [no limit]")
@click.option(
    "--order",
    type=click.Choice(["queue", "key"]),
    default="queue",
    show_default=True,
    help="The order to keep: of each queue, or of messages with one sharding key.",
)
@click.option("--replay-id", help="A name for this replay; with the same name, repeats can be detected. [random]")
@click.option("--target-name-server", metavar="HOST:PORT", help="Another cluster to send to.")
@click.option("--rehearse", is_flag=True, help="Only count the messages; send nothing.")
def replay(run: Run, **options: Any) -> None:
    """Send the messages of an interval again: to another topic, or to one group alone."""
    from eruca.spark_connector.pipelines import replay as work
    from eruca.spark_connector.pipelines.units import spell_time

    run.goal = "sent"
    options["replay_id"] = options["replay_id"] or uuid.uuid4().hex[:12]
    run.go_on = (
        f"A new run starts from the beginning; with --replay-id {options['replay_id']} consumers can detect repeats "
        "by their SPARK_ID."
    )
    done = perform(run, work, **options)
    if done.first is None or done.last is None:
        chosen = (("tag", options["tags"]), ("key", options["keys"]))
        such = "".join(f" with the {what} {' or '.join(given)}" for what, given in chosen if given)
        run.say(f"No message of {done.topic}{such} was stored in that interval: nothing is sent.")
        return
    place = f"{done.messages:,} messages of {done.topic}"
    stored = f"stored from {spell_time(done.first)} to {spell_time(done.last)}"
    if done.sent:
        rate = done.messages / done.seconds if done.seconds else 0.0
        run.say(f"{place}, {stored}, were sent to {done.to} in {done.seconds:.1f} s ({rate:,.0f}/s).")
        run.say(f"Their property REPLAY_ID is {done.replay_id}.")
    else:
        run.say(f"{place}, {stored}, would be sent to {done.to}.")
    run.bars(done.queues)


@pipeline.command()
@click.option(
    "--to",
    default="eruca.zip",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The zip file to write.",
)
def pyfiles(to: Path) -> None:
    """Write Eruca's code as a zip for jobs that `spark-submit` starts."""

    def work() -> None:
        from eruca.spark_connector.pipelines.pyfiles import write_pyfiles

        written = write_pyfiles(to)
        click.echo(f"{written} is written: spark-submit --py-files {written} JOB.py")

    sys.exit(end(work))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


for _command in (rollup, triage, audit):
    pipeline.add_command(_command)
