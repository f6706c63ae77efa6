"""The commands of ``eruca pipeline`` that report findings: rollup, triage, audit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from eruca.remoting.log_line import one_line
from eruca.standalone.pipeline.charts import sparkline, svg
from eruca.standalone.pipeline.png import png
from eruca.standalone.pipeline.run import FOUND, Run, common, perform

SHOWN = 30
"""Rows of a table to print."""
PICTURES = (".svg", ".png")


@click.command()
@common
@click.option("--topic", "topics", multiple=True, required=True, help="A topic to count. Repeatable.")
@click.option("--archive", metavar="FOLDER", help="Count an archive of them instead of the topics.")
@click.option("--since", "start", help="Messages stored from then on (ms, ISO 8601, or 2h ago: 2h). [the beginning]")
@click.option("--until", "end", help="And before then. [now]")
@click.option("--window", default="1m", show_default=True, help="The length of a window: 30s, 5m, 1h.")
@click.option("--by", type=click.Choice(["topic", "tag", "key"]), multiple=True, help="Count by this. [topic]")
@click.option(
    "--clock",
    type=click.Choice(["store", "born"]),
    default="store",
    show_default=True,
    help="The time of a message that decides its window.",
)
@click.option("--percentile", "percentiles", type=float, multiple=True, help="Of the latency. [50 95 99]")
@click.option("--to", metavar="FOLDER", help="Write the rows there as Parquet, in a folder for the interval.")
@click.option("--to-topic", help="Send the rows to this topic, each as JSON.")
@click.option("--resume", is_flag=True, help="Only the windows that ended since the last run into FOLDER.")
@click.option(
    "--grace", default="10s", show_default=True, help="With --resume: the time that windows wait for late messages."
)
@click.option("--until-stopped", is_flag=True, help="Run until Ctrl-C or SIGTERM; implies --resume.")
@click.option("--interval", default="1m", show_default=True, help="With --until-stopped: the time between rounds.")
@click.option(
    "--skip-lost", is_flag=True, help="Continue although the broker has deleted messages that are not counted yet."
)
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), help="Draw the counts as FILE.svg or FILE.png."
)
def rollup(
    run: Run,
    picture: Path | None,
    by: tuple[Any, ...],
    percentiles: tuple[float, ...],
    until_stopped: bool,
    **options: Any,
) -> None:
    """Count messages, bytes and latencies by window of time, and by topic, tag or key."""
    from eruca.spark_connector.pipelines import rollup as work
    from eruca.spark_connector.pipelines.units import spell_time

    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise click.BadParameter(
            f"{picture} is no name of a picture: end it with .svg or .png.", param_hint="--picture"
        )
    if picture is not None and not picture.parent.is_dir():
        raise click.BadParameter(f"there is no folder {picture.parent}.", param_hint="--picture")
    if options["resume"] or until_stopped:
        run.go_on = "Run it again: it continues with the windows that are not counted yet."
    options |= {"by": by or ("topic",), "percentiles": percentiles or (50, 95, 99)}
    done = perform(run, work, until_stopped=until_stopped, **options)
    _print_rollup(run, done)
    if picture is not None and done.start != done.end:
        columns = [(spell_time(start)[:19], float(count)) for start, count in sorted(done.windows.items())]
        title = f"Messages by window: {', '.join(options['topics'])}"
        if picture.suffix.lower() == ".png":
            picture.write_bytes(png(title, columns, "messages"))
        else:
            picture.write_text(svg(title, columns, "messages"))
        run.say(f"The picture is {picture}.")


def _print_rollup(run: Run, done: Any) -> None:
    from eruca.spark_connector.pipelines.units import spell_time, spell_times

    _print_windows(run, done)
    if done.start == done.end:
        run.say("Nothing is new: no window has ended that was not counted yet.")
        return
    start = done.rows[0].start if done.rows and not done.start else done.start
    run.say(f"{done.messages:,} messages of windows from {spell_time(start)} to {spell_time(done.end)}.")
    if done.left_out:
        run.say(f"{done.left_out:,} messages were left out: they came after their window was counted.")
    counts = [count for _, count in sorted(done.windows.items())]
    if len(counts) > 1:
        blocks = sparkline(counts)
        spelled, day = spell_times([min(done.windows), max(done.windows)])
        first, last = spelled[min(done.windows)], spelled[max(done.windows)]
        run.say(
            f"by window  {blocks}\n           {first}{last.rjust(max(len(blocks) - len(first), len(last) + 1))} {day}"
        )
    if len(done.groups) > 1:
        run.bars(done.groups)


def _print_windows(run: Run, done: Any) -> None:
    from eruca.spark_connector.pipelines.units import spell_bytes, spell_times

    spelled, day = spell_times([row.start for row in done.rows[:SHOWN]])
    figures_of = (f"p{each:g}" for each in done.percentiles)
    rows = []
    for row in done.rows[:SHOWN]:
        figures = (row.messages, spell_bytes(row.size), *map(round, row.percentiles), row.slowest)
        rows.append((spelled[row.start], *(name or "-" for name in row.of), *figures))
    if done.rows:
        heads = ("window", *done.by, "messages", "bytes", *figures_of, "max")
        run.table(heads, rows, title=f"{day}, latencies in ms")
    if len(done.rows) > SHOWN:
        run.say(f"… and {len(done.rows) - SHOWN:,} more rows.")


@click.command()
@common
@click.option("--group", required=True, help="The group whose dead letters are inspected.")
@click.option("--cause-property", metavar="NAME", help="The property that holds the cause.")
@click.option("--cause-pattern", metavar="REGEX", help="Or a pattern whose first group in the body is the cause.")
@click.option("--since", "start", help="Letters that died then or later (ms, ISO 8601, or 2h ago: 2h).")
@click.option("--until", "end", help="And before then.")
@click.option("--resend-cause", "resend_causes", multiple=True, help="Send letters of this cause again. Repeatable.")
@click.option("--resend-id", "resend_ids", multiple=True, help="Send the letter with this message id. Repeatable.")
@click.option("--resend-all", is_flag=True, help="Send all of them again.")
@click.option("--to-group", is_flag=True, help="To this group alone, instead of to the topic.")
@click.option("--ledger", metavar="FILE", help="The file that records what was sent again. [eruca-triage-GROUP.jsonl]")
@click.option("--resend-uncertain", is_flag=True, help="Also letters that a killed run may have sent.")
def triage(run: Run, **options: Any) -> int | None:
    """Group the dead letters of a group by cause, and send the chosen ones again, each once."""
    from eruca.spark_connector.pipelines import triage as work
    from eruca.spark_connector.pipelines.units import spell_times

    if options["resend_causes"] or options["resend_ids"] or options["resend_all"]:
        run.goal = "sent again"
    ledger = options["ledger"] = options["ledger"] or f"eruca-triage-{options['group']}.jsonl"
    run.go_on = f"Run it again: {ledger} records the letters that this run may have sent, and the next run names them."
    done = perform(run, work, **options)
    shown = done.causes[:SHOWN]
    spelled, day = spell_times([stamp // 1000 * 1000 for each in shown for stamp in (each.first, each.last)])
    rows = []
    for each in shown:
        numbers = (each.count, each.waiting, each.reconsume_times)
        times = (spelled[stamp // 1000 * 1000] for stamp in (each.first, each.last))
        rows.append((each.topic, each.cause, each.tags, *numbers, *times))
    if done.causes:
        run.table(("topic", "cause", "tag", "letters", "waiting", "retries", "first", "last"), rows, title=day)
        for each in shown:
            run.say(f"for example {each.example} ({one_line(each.cause)})")
        totals: Counter[str] = Counter()
        for each in done.causes:
            totals[each.cause] += each.count
        if len(totals) > 1:
            run.bars(totals)
    waiting = sum(each.waiting for each in done.causes)
    run.say(
        f"{done.group} has {sum(each.count for each in done.causes):,} dead letters, {waiting:,} of them not resent."
    )
    if done.chosen:
        run.say(
            f"{done.chosen:,} were chosen, {len(done.resent):,} were sent again now, "
            f"{done.chosen - len(done.resent):,} had been before; the ledger is {done.ledger}."
        )
    if done.uncertain:
        run.say(
            f"A killed run may have sent {len(done.uncertain):,} letters, such as {done.uncertain[0]}: "
            "check whether they arrived, or send them in any case with --resend-uncertain."
        )
        return FOUND
    return None


@click.command()
@common
@click.option("--topic", "topics", multiple=True, required=True, help="A topic. Repeatable.")
@click.option("--group", "groups", multiple=True, required=True, help="A group that consumes them. Repeatable.")
@click.option("--max-behind", default=0, show_default=True, help="Messages that a group may be behind.")
@click.option("--max-dead", type=int, help="Dead letters that a group may have. [any]")
@click.option(
    "--window", default="1m", show_default=True, help="The windows by which waiting messages are counted: 30s, 5m, 1h."
)
@click.option("--traces", is_flag=True, help="Also compare the traces of producers with those of consumers.")
@click.option("--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Where the traces are.")
@click.option("--since", "start", help="With --traces: messages sent from then on (ms, ISO 8601, or 2h ago: 2h).")
@click.option("--until", "end", help="And before then. [now]")
@click.option("--tag", "tags", multiple=True, help="With --traces: a tag to which the groups subscribe. Repeatable.")
@click.option("--offsets-only", is_flag=True, help="Compare offsets and read no message: fast, and without Spark.")
def audit(run: Run, max_behind: int, max_dead: int | None, offsets_only: bool, **options: Any) -> int | None:
    """Compare what producers stored with what groups consumed; exits with 3 when a group is behind."""
    from eruca.spark_connector.pipelines import audit as work
    from eruca.spark_connector.pipelines.units import spell_times

    done = perform(run, work, with_spark=not offsets_only, **options)
    spelled, day = spell_times([each.oldest_waiting for each in done.groups if each.oldest_waiting is not None])
    title = f"oldest waiting: {day}" if spelled else None
    columns = ("topic", "group", "stored", "consumed", "waiting", "lost", "retrying", "dead", "oldest")
    rows = []
    for each in done.groups:
        counts = (each.stored, each.consumed, each.behind, each.lost, each.retrying, each.dead)
        oldest = "-" if each.oldest_waiting is None else spelled[each.oldest_waiting]
        rows.append((each.topic, each.group, *counts, oldest))
    run.table(columns, rows, title=title)
    for each in done.groups:
        if each.behind:
            _say_waiting(run, each)
    if done.traces is not None:
        _say_traces(run, done.traces)
    faults = done.faults(behind=max_behind, dead=max_dead)
    for sentence in faults:
        run.say(sentence)
    if not faults:
        run.say("Every group has consumed what it should.")
    return FOUND if faults else None


def _say_waiting(run: Run, pair: Any) -> None:
    run.say(f"Messages of {pair.topic} that {pair.group} has not consumed:")
    waiting = [(line.queue, line.behind) for line in pair.queues if line.behind]
    run.bars({f"{queue.broker_name}:{queue.queue_id}": count for queue, count in waiting})
    if len(pair.tags) > 1:
        run.bars({f"tag {tag}": count for tag, count in pair.tags.items()})
    if len(pair.windows) > 1:
        run.say(f"by store time  {sparkline([count for _, count in sorted(pair.windows.items())])}")


def _say_traces(run: Run, traces: Any) -> None:
    if not traces.there:
        return
    heads = ("topic", "group", "sent", "consumed", "failing", "missing", "repeated")
    rows = [
        (each.topic, each.group, each.sent, each.consumed, each.failing, each.missing, each.repeated)
        for each in traces.groups
    ]
    run.table(heads, rows, title="By traces")
    for each in traces.topics:
        absent = "some were deleted since" if each.absent is None else f"{each.absent:,} of them are not there"
        run.say(f"{each.topic}: {each.sent:,} sends by traces, {absent}; {each.untraced:,} messages without a trace.")
    for each in traces.groups:
        if len(each.windows) > 1:
            sent, consumed = zip(*(pair for _, pair in sorted(each.windows.items())), strict=True)
            run.say(f"sent to {each.topic}  {sparkline(sent)}")
            run.say(f"consumed by {each.group}  {sparkline(consumed)}")
