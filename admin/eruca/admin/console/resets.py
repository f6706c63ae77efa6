"""A reset of a group: the form, its dry run, the confirmation by name, the progress by queue, and the way back.

The dry run is a question and changes nothing. A reset that was begun goes on in a task of its own, whatever the browser
does; its page shows what was said of it. What it does is decided by `eruca.admin.resets`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from eruca.admin.console.forms import Field, form
from eruca.admin.console.groups import topics_in
from eruca.admin.console.overview import Freshness, freshness
from eruca.admin.console.visit import Console, Visit, act, now, page
from eruca.admin.errors import AdminError, BadValue, NotFound
from eruca.admin.resets import ways_back
from eruca.admin.resets.acts import Done
from eruca.admin.resets.choices import SWITCHES, options
from eruca.admin.resets.engine import Reset, check_left_out, of_several, performed, prepare_all, untouched
from eruca.admin.resets.places import is_file, place, queues
from eruca.admin.resets.targets import Only, Table, Target
from eruca.admin.results.answer import Answer, Moment, Result
from eruca.admin.results.moves import QueueMove, moves
from eruca.admin.results.stored_offsets import topics_with_offsets
from eruca.protocol.errors import ProtocolError
from eruca.protocol.names import retry_topic
from eruca.protocol.queues import MessageQueue

_SWITCHES = tuple(each.name for each in SWITCHES)
_FORM = form("resetOffset", "topic", "all-topics", "to", "queue", "force", *_SWITCHES, "with-retries", "wait")
LOOK = 15
"""Seconds to look whether the members moved, where the form says nothing."""
LAST = 5.0
"""Seconds for a reset that moves queues while the console ends."""


class ResetPlan(Result, frozen=True, kw_only=True, rename="camel"):
    """A dry run."""

    queues: list[QueueMove]
    changes: bool
    again: int
    skipped: int
    meaning: list[str]
    retries: int
    """Messages that wait in the retry topic, which the reset does not touch."""


class ResetPage(Answer, frozen=True, kw_only=True, rename="camel"):
    """The form of a reset; with what was filled in, its dry run."""

    group: str
    fields: list[Field]
    refusal: str
    """Why the reset would not be done."""
    plan: ResetPlan | None


@page("/groups/{group}/reset", "reset.html")
async def reset_page(visit: Visit) -> ResetPage:
    """The form and the dry run. Changes nothing."""
    group = visit.names["group"]
    topics, errors = await topics_in(visit.admin, group)
    plan, refusal = None, ""
    if visit.given.get("to", "").strip():
        try:
            plan = await _plan_of(await _prepared(visit, group))
        except (AdminError, ProtocolError) as error:
            refusal = str(error)
    usual = {"topic": topics[0] if len(topics) == 1 else "", "force": "true"}
    return ResetPage(
        group=group,
        fields=visit.fields(_FORM, usual=usual, known={"topic": topics}),
        refusal=refusal,
        plan=plan,
        errors=errors,
    )


async def _prepared(visit: Visit, group: str) -> list[Reset]:
    """The resets that the form asks for, one for each topic. Raises AdminError; nothing has moved then."""
    filled, admin = visit.filled(_FORM), visit.admin
    topics, to = [each.strip() for each in filled.text("topic").split(",") if each.strip()], filled.text("to")
    if filled.has("all-topics"):
        topics = await topics_with_offsets(admin, group)
    if not topics or not to:
        raise BadValue("give a topic and where to")
    if is_file(to):
        raise BadValue("this console reads no file of its machine: mqadmin resetOffset --from-file does")
    only = queues(filled.text("queue")) if filled.has("queue") else None
    places: dict[str, Target] = {}
    for topic in topics:
        target = await place(admin, topic, to)
        places[topic] = target if only is None else Only(target, only)
    wishes = options(filled.given.keys(), force=filled.text("force").lower() != "false")
    return await prepare_all(admin, group, places, wishes, with_retries=filled.has("with-retries"))


async def _plan_of(resets: list[Reset]) -> ResetPlan:
    found = [move for each in resets for move in moves(each, None)]
    group = resets[0].survey.group
    retries = any(each.survey.topic == retry_topic(group) for each in resets)
    return ResetPlan(
        queues=found,
        changes=any(each.changes for each in resets),
        again=sum(each.again for each in found),
        skipped=sum(each.skipped for each in found),
        meaning=[line for each in resets for line in each.meaning()],
        retries=0 if retries else await untouched(resets[0].admin, group),
    )


# ------------------------------------------------------------------ resets that were begun


class MovedQueue(Result, frozen=True, kw_only=True, rename="camel"):
    """One queue of a reset that was begun."""

    topic: str
    broker: str
    queue_id: int
    before: int | None
    """None where the group had no offset."""
    target_offset: int
    state: str
    """waiting, moved (its broker says so) or confirmed (it was seen there)."""


class ResetProgress(Result, frozen=True, kw_only=True, rename="camel"):
    """A reset that was begun."""

    id: str
    group: str
    topics: list[str]
    to: str
    began: Moment
    state: str
    """moving, confirming, done or failed."""
    confirmed: int
    queues: list[MovedQueue]
    said: list[str]
    error: str
    ways_back: dict[str, str]
    """The files with the offsets from before, by their topics."""
    seen: Freshness


class ResetsPage(Answer, frozen=True, kw_only=True, rename="camel"):
    """The resets of this run, the latest first."""

    items: list[ResetProgress]


@dataclass
class Running:
    """The resets of one form, one after the other in a task."""

    id: str
    resets: list[Reset]
    began: Moment
    within: int
    """Seconds to look whether the members moved."""
    said: list[str] = field(default_factory=list)
    state: str = "moving"
    error: str = ""
    done: list[Done] = field(default_factory=list)
    """Of those that were begun."""
    task: asyncio.Task[None] | None = None

    def progress(self) -> ResetProgress:
        """What is known of it now."""
        rows = [
            MovedQueue(
                topic=move.seen.queue.topic,
                broker=move.seen.queue.broker_name,
                queue_id=move.seen.queue.queue_id,
                before=move.seen.stored,
                target_offset=move.new,
                state=self._state_of(move.seen.queue),
            )
            for reset in self.resets
            for move in reset.plan.moves
        ]
        topics = [each.survey.topic for each in self.resets]
        return ResetProgress(
            id=self.id,
            group=self.resets[0].survey.group,
            topics=topics,
            to=self.resets[0].target.text,
            began=self.began,
            state=self.state,
            confirmed=sum(each.state == "confirmed" for each in rows),
            queues=rows,
            said=list(self.said),
            error=self.error,
            ways_back={
                topic: str(each.way_back) for topic, each in zip(topics, self.done, strict=False) if each.way_back
            },
            seen=freshness(0.0, ""),
        )

    def _state_of(self, queue: MessageQueue) -> str:
        for done in self.done:
            if queue in done.offsets:
                return "moved" if queue in done.waiting() else "confirmed"
        return "waiting"

    async def run(self, environment: Mapping[str, str]) -> None:
        """Move and look."""
        number = 0
        try:
            for reset in self.resets:
                self.state = "moving"
                async with performed(reset, environment, self.said.append, self.within) as done:
                    self.done.append(done)
                    self.state = "confirming"
                number += 1
            check_left_out(self.resets)
            self.state = "done"
        except (AdminError, ProtocolError) as error:
            fault = error if isinstance(error, AdminError) else AdminError(str(error))
            all_ended = number == len(self.resets)
            self.state, self.error = "failed", str(fault if all_ended else of_several(self.resets, number, fault))
        except asyncio.CancelledError:
            self.state, self.error = "failed", "the console has ended"
            raise


@act("/groups/{group}/reset")
async def begin(visit: Visit) -> str:
    """Look again, and begin the reset."""
    group = visit.names["group"]
    visit.confirmed(group)
    return _begin(visit, await _prepared(visit, group), visit.filled(_FORM).number("wait", LOOK))


def _begin(visit: Visit, resets: list[Reset], within: int = LOOK) -> str:
    running = Running(secrets.token_hex(4), resets, now(), within)
    visit.console.resets[running.id] = running
    for reset in resets:
        before = {
            f"{each.seen.queue.broker_name}:{each.seen.queue.queue_id}": each.seen.stored for each in reset.plan.moves
        }
        visit.changed(
            f"offsets of group {reset.survey.group} in topic {reset.survey.topic}", _listed(before), reset.target.text
        )
    running.task = asyncio.create_task(running.run(visit.console.environment))
    return f"/resets/{running.id}"


def _listed(offsets: Mapping[str, int | None]) -> str:
    return ", ".join(f"{queue}={'none' if offset is None else offset}" for queue, offset in offsets.items())


@page("/resets", "resets.html")
async def resets(visit: Visit) -> ResetsPage:
    """The resets of this run."""
    running = [each for each in visit.console.resets.values() if isinstance(each, Running)]
    return ResetsPage(items=[each.progress() for each in reversed(running)])


@page("/resets/{id}", "reset_progress.html")
async def reset_progress(visit: Visit) -> ResetProgress:
    """One reset that was begun."""
    return _running(visit).progress()


@act("/resets/{id}/back")
async def back(visit: Visit) -> str:
    """Bring the group back to the offsets from before: another reset."""
    former = _running(visit)
    progress = former.progress()
    visit.confirmed(progress.group)
    if not progress.ways_back:
        raise AdminError("nothing was changed: this reset has no way back")
    places: dict[str, Target] = {}
    for topic, path in progress.ways_back.items():
        _, offsets = ways_back.read(path)
        places[topic] = Table(offsets, Path(path).name)
    allowed = replace(former.resets[0].options, force=True)
    return _begin(visit, await prepare_all(visit.admin, progress.group, places, allowed))


def _running(visit: Visit) -> Running:
    found = visit.console.resets.get(visit.names["id"])
    if not isinstance(found, Running):
        raise NotFound("this console has begun no such reset: it may have been started again")
    return found


async def end_resets(console: Console) -> None:
    """Let resets that move queues end, and end those that only look."""
    tasks = [
        each.task
        for each in console.resets.values()
        if isinstance(each, Running) and each.task and not each.task.done()
    ]
    moving = [each.task for each in console.resets.values() if isinstance(each, Running) and each.state == "moving"]
    if going := [each for each in moving if each is not None and not each.done()]:
        await asyncio.wait(going, timeout=LAST)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
