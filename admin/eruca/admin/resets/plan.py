"""From what was seen to what is done: for each queue, and never for the whole topic by the answer of one broker.

Owns the decision and its reasons. Pure: asks nobody, changes nothing. A reset that would not be true is refused here,
in one sentence that says what to do.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eruca.admin.errors import AdminError, NotFound, Partial
from eruca.admin.resets.survey import BrokerSeen, Kind, QueueSeen, Survey
from eruca.admin.resets.targets import shown
from eruca.admin.text import nearest
from eruca.protocol.queues import MessageQueue


class Way(enum.Enum):
    """How a broker's queues are moved."""

    PUSHED = enum.auto()
    """The broker notifies its members (222 for all queues and a time)."""
    PUSHED_EACH = enum.auto()
    """The broker notifies its members of one queue after the other (222 with queue and offset)."""
    STORED = enum.auto()
    """Nobody consumes: the offsets are stored (15)."""
    NOTHING = enum.auto()
    """No queue of this broker moves."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator allows."""

    force: bool = True
    """False: a queue moves only back."""
    partial: bool = False
    """Go on without brokers that do not answer."""
    now: bool = False
    """Do not wait for members that a broker does not know yet."""
    new_group: bool = False
    """The group need not be known."""
    force_active: bool = False
    """Members of Java that ignore a reset are accepted."""


@dataclass(frozen=True, slots=True)
class Move:
    """One queue: where it leads, and whether the offset changes."""

    seen: QueueSeen
    target: int
    """The offset that was asked for."""
    new: int
    """The offset that the group gets: without force, one that is not ahead."""

    @property
    def start(self) -> int:
        """Where the group stands: at the first message if it has no offset."""
        return self.seen.first if self.seen.position is None else self.seen.position

    @property
    def changes(self) -> bool:
        """Whether the stored offset will be another."""
        return self.seen.stored != self.new

    @property
    def again(self) -> int:
        """The messages that come again."""
        return max(0, self.start - self.new)

    @property
    def skipped(self) -> int:
        """The messages that were not consumed and will not be."""
        return max(0, self.new - self.start)


@dataclass(frozen=True, slots=True)
class Step:
    """What is done at one broker."""

    broker: BrokerSeen
    way: Way
    moves: Sequence[Move]
    waits: bool = False
    """The broker does not know the members yet: wait for their heartbeat first."""
    absent: frozenset[str] = frozenset()
    """The members that this broker, which has just restarted, does not know yet, and that others know."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done, and what must be said before."""

    steps: Sequence[Step]
    online: bool
    """Whether members consume the topic: then they move, else stored offsets do."""
    settles_in: float = 0.0
    """Seconds until a broker knows all members again, where every one has just restarted: then decide again."""
    remarks: Sequence[str] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def moves(self) -> list[Move]:
        """The moves of all brokers, by queue."""
        return sorted((move for step in self.steps for move in step.moves), key=lambda move: move.seen.queue)


def check_reach(survey: Survey, options: Options) -> None:
    """Raise AdminError if a broker is missing, unless the reset may do without."""
    if survey.missing and not options.partial:
        raise AdminError(
            f"nothing was moved, since not every broker of {survey.topic} can do it ({_reasons(survey.missing)}); "
            "--partial does without"
        )


def _reasons(missing: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in sorted(missing.items()))


def check(survey: Survey, options: Options) -> None:
    """Raise AdminError if this group cannot be reset truly, whatever the target is."""
    group, topic = survey.group, survey.topic
    check_reach(survey, options)
    if not survey.brokers:
        raise AdminError(f"no broker of {topic} can do it, so nothing was moved ({_reasons(survey.missing)})")
    if not (_is_known(survey) or options.new_group):
        hint = nearest(group, sorted({name for each in survey.brokers for name in each.groups}))
        raise NotFound(
            f"no broker of {topic} knows the consumer group {group}, so nothing was moved; --new-group stores offsets "
            f"for a group that is to come{hint}"
        )
    models = {each.group.message_model for each in survey.brokers if each.group is not None}
    if "BROADCASTING" in models:
        raise AdminError(
            f"{group} broadcasts: each member keeps its own offsets, in its folder of offsets (Java: "
            "~/.rocketmq_offsets, Eruca: offset_folder), so no broker can move it; stop the members, delete or change "
            "those files, and start them again"
        )
    active = any(each.group is not None and each.group.consume_type == "CONSUME_ACTIVELY" for each in survey.brokers)
    deaf = sorted(each.client_id for each in survey.members.values() if active and each.language == "JAVA")
    if deaf and not options.force_active:
        raise AdminError(
            f"the members {', '.join(deaf)} of {group} are pull consumers of Java, which ignore a reset; stop them and "
            "reset then, or use --force-active"
        )


def decide(
    survey: Survey,
    targets: Mapping[MessageQueue, int],
    timestamp: int | None,
    options: Options,
    *,
    is_near: bool = False,
) -> Plan:
    """What is done at each broker, to bring each queue of ``targets`` there.

    ``timestamp`` is the time for which a broker finds these offsets by itself, or, with ``is_near``, offsets near to
    them. Raises AdminError where members are online that cannot be brought there.
    """
    group, topic = survey.group, survey.topic
    subscribed = any(each.subscribes(topic) for each in survey.brokers)
    remarks: list[str] = []
    if wait := settles_in(survey):
        who = restarted(survey)
        if options.now:
            raise AdminError(
                f"nothing was moved, since {who}; try again in {wait:.0f} s, or without --now, which waits"
            )
        remarks.append(f"{who}: waiting {wait:.0f} s for them")
    if survey.members and not subscribed:
        remarks.append(f"no member of {group} subscribes {topic}: its offsets are stored, nobody consumes it now")
    remarks += _unread(survey)
    if _is_known(survey):
        remarks += _without_offset(survey, targets)
    steps = []
    for broker in survey.brokers:
        moves = [_move(seen, targets[seen.queue], options) for seen in broker.queues if seen.queue in targets]
        exact = None if is_near and broker.kind is not Kind.APACHE_4 else timestamp
        way = _way(broker, moves, exact, subscribed, options)
        if way is Way.PUSHED:
            remarks += _side_effects(broker, moves, options)
            if is_near:
                remarks.append(
                    f"{broker.name} runs RocketMQ 4.9, which moves members to the message nearest to the time: it may "
                    "be one that is older"
                )
        absent = frozenset(survey.members) - broker.members if broker.settles_in else frozenset()
        waits = way in (Way.PUSHED, Way.PUSHED_EACH) and (not broker.subscribes(topic) or bool(absent))
        if waits and options.now:
            raise AdminError(
                f"nothing was moved, since {broker.name} does not know the members of {group} yet (it has restarted, "
                "or they just subscribed); try again in 30 s, or without --now, which waits for them"
            )
        if waits:
            remarks.append(f"{broker.name} does not know the members of {group} yet: waiting for their heartbeat")
        steps.append(Step(broker, way, moves, waits, absent))
    return Plan(steps, subscribed, wait, remarks, survey.missing)


def settles_in(survey: Survey) -> float:
    """Seconds until a broker knows all members again; 0 unless every one has just restarted.

    Members send heartbeats to every broker of their topics: one that did not restart knows them all.
    """
    return min((each.settles_in for each in survey.brokers), default=0.0) if _is_known(survey) else 0.0


def restarted(survey: Survey) -> str:
    """The sentence about brokers that have all just restarted."""
    names = [each.name for each in survey.brokers]
    return (
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} just restarted and may not know all members of "
        f"{survey.group} yet"
    )


def _unread(survey: Survey) -> Iterator[str]:
    for broker in survey.brokers:
        if broker.unread:
            ids, one = ", ".join(map(str, broker.unread)), len(broker.unread) == 1
            yield (
                f"{'queue' if one else 'queues'} {ids} of {broker.name} {'is' if one else 'are'} written but not read, "
                "and left as before; to let consumers read: "
                f"updateTopic -b {broker.address} -t {survey.topic} --keep -r N"
            )


def _without_offset(survey: Survey, targets: Mapping[MessageQueue, int]) -> Iterator[str]:
    for broker in survey.brokers:
        fresh = [seen.queue.queue_id for seen in broker.queues if seen.stored is None and seen.queue in targets]
        if fresh:
            yield f"queue{'s' * (len(fresh) > 1)} {', '.join(map(str, fresh))} of {broker.name} had no offset"


def _is_known(survey: Survey) -> bool:
    return bool(survey.members) or any(each.knows_group or each.topics_of_group for each in survey.brokers)


def _move(seen: QueueSeen, target: int, options: Options) -> Move:
    stored = seen.first if seen.stored is None else seen.stored
    return Move(seen, target, target if options.force or target < stored else stored)


def _way(broker: BrokerSeen, moves: Sequence[Move], timestamp: int | None, subscribed: bool, options: Options) -> Way:
    if not moves or not (options.force or any(move.changes for move in moves)):
        return Way.NOTHING
    if not subscribed:
        return Way.STORED
    whole = len(moves) == len(broker.queues) and not broker.unread
    if timestamp is not None and whole:
        return Way.PUSHED
    if broker.kind is not Kind.APACHE_4:
        return Way.PUSHED_EACH
    if broker.unread:
        raise AdminError(
            f"nothing was moved: {broker.name} runs RocketMQ 4.9, which moves members only in all queues that are "
            "written, and consumers do not read all of them; stop the members and reset then, or let them read all "
            "(updateTopic --keep -r N)"
        )
    raise AdminError(
        f"nothing was moved: {broker.name} runs RocketMQ 4.9, which moves members only in all queues and to a time; "
        "stop the members and reset then, or give a time"
    )


def _side_effects(broker: BrokerSeen, moves: Iterable[Move], options: Options) -> list[str]:
    remarks = []
    still = [shown(move.seen.queue) for move in moves if not move.changes and move.seen.stored != move.seen.first]
    if not options.force and still and broker.kind is not Kind.ERUCA:
        remarks.append(f"{', '.join(still)} stay, but what was consumed and not committed there comes again")
    beyond = [shown(move.seen.queue) for move in moves if broker.is_only_read(move.seen)]
    if beyond:
        remarks.append(
            f"{broker.name} runs RocketMQ 4.9, which does not move queues that are only read: {', '.join(beyond)}"
        )
    return remarks


def not_all(missing: Mapping[str, str]) -> Partial:
    """The error after a reset that went on without some brokers."""
    return Partial("not moved: " + "; ".join(f"{name} ({reason})" for name, reason in sorted(missing.items())))
