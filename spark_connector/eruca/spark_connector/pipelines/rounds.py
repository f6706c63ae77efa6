"""A rollup that goes on: which windows the next round counts, and where the last one ended.

Owns the folder ``_rounds`` of a rollup: ``settings.json`` (what is counted), ``plan-<start>_<end>.json`` (a round that
has begun) and ``done-<start>_<end>.json`` (the last one that ended, with the offsets at which the next begins). Times
are ms. A reader of Parquet passes over names that begin with ``_``.

Invariant: a window is in one round, and a round is there once. Its interval and its offsets are written down before
anything is read; one that died is done again with both, and its rows replace what it left. A round ends where all
windows are over for the time ``grace``, so no message of them can be missing; by the producer's clock messages count
that were stored within ``grace`` of their birth, whichever round sees them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eruca.client import MessageQueue
from eruca.spark_connector.errors import BadOption, SourceError
from eruca.spark_connector.offsets.positions import Positions, read_positions, write_positions
from eruca.spark_connector.pipelines.endpoint import Endpoint
from eruca.spark_connector.pipelines.folders import Folders

ROUNDS = "_rounds"
STAGING = "_staging"


@dataclass(frozen=True)
class Round:
    """The windows in [start, end), and the offsets that hold their messages: from ``first``, up to ``last``."""

    start: int
    end: int
    first: Positions
    last: Positions
    following: Positions
    """Where the round after it begins."""

    @property
    def name(self) -> str:
        """As in the names of files."""
        return f"{self.start}_{self.end}"

    def to_json(self) -> str:
        """The form on disk."""
        parts = {name: write_positions(getattr(self, name)) for name in ("first", "last", "following")}
        return json.dumps({"start": self.start, "end": self.end, **parts})

    @classmethod
    def from_json(cls, text: str) -> Round:
        """Of that form."""
        value = json.loads(text)
        parts = [read_positions(value[name]) for name in ("first", "last", "following")]
        return cls(value["start"], value["end"], *parts)


class Rounds:
    """The rounds of one rollup in one folder. Raises BadOption where the folder is another rollup's.

    Args:
        settings: what is counted, and how; the same in every run.
        start: where the first round begins; 0 for the oldest message.
        margin: how long before and after its windows messages of a round may have been stored.
    """

    def __init__(
        self, folders: Folders, endpoint: Endpoint, settings: Mapping[str, Any], *, start: int, length: int, margin: int
    ) -> None:
        self._folders, self._endpoint, self._settings = folders, endpoint, dict(settings)
        self._start, self._length, self.margin = start, length, margin
        self._root = f"{folders.root}/{ROUNDS}"
        self._check()

    def _check(self) -> None:
        path = f"{self._root}/settings.json"
        if not self._folders.exists(path):
            if self._folders.find(f"{self._folders.root}/interval=*"):
                raise BadOption(
                    f"{self._folders.root} holds rollups that were not begun with resume: choose another folder."
                )
            self._folders.write(path, json.dumps(self._settings))
        there = json.loads(self._folders.read(path))
        for name, value in self._settings.items():
            if there.get(name) != value:
                raise BadOption(
                    f"{self._folders.root} was begun with {name} {_spell(there.get(name))}, not {_spell(value)}: "
                    "choose another folder, or go on as it was begun."
                )

    def next(self, limit: int, *, skip_lost: bool) -> Round | None:
        """The round that is to be done, with windows that end at ``limit`` at the latest; None for none yet.

        Raises SourceError where messages are gone that it should count, unless ``skip_lost``.
        """
        last = self._last()
        start = self._start if last is None else last.end
        for begun in self._read("plan"):
            if last is None or begun.start == start:
                return begun
        end = limit // self._length * self._length
        if start >= end:
            return None
        queues = [queue for topic in self._settings["topics"] for queue in self._endpoint.existing_queues(topic)]
        oldest = self._endpoint.beginnings(queues)
        if last is not None:
            first = _go_on(last.following, oldest, self._endpoint.ends(queues), skip_lost=skip_lost)
            stored_since = self._endpoint.offsets_from(queues, last.end - self.margin)
            first = _of_one_life(last.following, first, stored_since, skip_lost=skip_lost)
        elif start:
            first = self._endpoint.offsets_from(queues, max(0, start - self.margin))
        else:
            first = oldest
        until = self._endpoint.offsets_from(queues, end + self.margin)
        following = self._endpoint.offsets_from(queues, end - self.margin) if self.margin else until
        planned = Round(start, end, first, {queue: max(first[queue], until[queue]) for queue in queues}, following)
        self._folders.write(f"{self._root}/plan-{planned.name}.json", planned.to_json())
        return planned

    def _last(self) -> Round | None:
        return max(self._read("done"), key=lambda each: each.end, default=None)

    def _read(self, kind: str) -> list[Round]:
        found = self._folders.find(f"{self._root}/{kind}-*.json")
        return [Round.from_json(self._folders.read(each.path)) for each in found]

    def staging(self, done: Round) -> str:
        """Where the rows of a round are written aside."""
        return f"{self._folders.root}/{STAGING}/{done.name}"

    def finish(self, done: Round) -> None:
        """The rows are whole: put them in their place, and remember it."""
        files, place = self._folders, f"{self._folders.root}/interval={done.name}"
        files.delete(place)  # an attempt that died may have moved some
        files.move(self.staging(done), place)
        before = files.find(f"{self._root}/done-*.json")
        files.write(f"{self._root}/done-{done.name}.json", done.to_json())
        for each in (*before, *files.find(f"{self._root}/plan-*.json")):
            files.delete(each.path)


def check_free(folders: Folders) -> None:
    """Raise BadOption where the folder is that of a rollup that goes on."""
    if folders.exists(f"{folders.root}/{ROUNDS}"):
        raise BadOption(f"{folders.root} is the folder of a rollup that goes on: add resume, or choose another folder.")


def _go_on(following: Positions, oldest: Positions, ends: Positions, *, skip_lost: bool) -> dict[MessageQueue, int]:
    """Where each queue is gone on with; a new one at its beginning."""
    first = {}
    for queue, begin in oldest.items():
        at = following.get(queue, begin)
        if not skip_lost and ends[queue] < at:
            raise SourceError(
                f"{queue} was read up to {at}, but now it ends at {ends[queue]}: the topic was created again, or its "
                "broker lost data. With skip_lost (--skip-lost) it is gone on at its beginning."
            )
        if not skip_lost and at < begin:
            raise SourceError(
                f"{begin - at:,} messages of {queue} were deleted before they were counted. With skip_lost "
                "(--skip-lost) it is gone on without them."
            )
        first[queue] = begin if ends[queue] < at else max(at, begin)
    return first


def _of_one_life(
    following: Positions, first: Mapping[MessageQueue, int], stored_since: Positions, *, skip_lost: bool
) -> dict[MessageQueue, int]:
    """``first``, or what was stored since the last round where that begins earlier: the queue was made again."""
    begin = dict(first)
    for queue, at in following.items():
        if queue in begin and stored_since[queue] < min(at, begin[queue]):
            if not skip_lost:
                raise SourceError(
                    f"{queue} was read up to {at}, but what was stored since begins at {stored_since[queue]}: "
                    "the topic was created again, or its broker lost data. "
                    "With skip_lost (--skip-lost) it is gone on there."
                )
            begin[queue] = stored_since[queue]
    return begin


def _spell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
