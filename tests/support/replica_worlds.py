"""Worlds of a broker group: brokers with the rules of ``eruca.broker.failover``, an etcd, and what may happen next.

Owns what a world is, and what one broker does at each event. A broker is a ``Member`` and its log, of which each byte
is a message and says in which epoch it was written; and its tables, of which each change says in which epoch it was
made. Whoever follows gets all tables at first, then each change, before what was written of the log later. What a kill
leaves of tables is a question to the machines: all of what is on the disk (topics, groups), nothing of what is in
memory (commits, locks); then who was killed stands as ``election.first`` says, that is after those that were not, and
who is alone in the set is not killed: nobody else need have those. Requests to etcd and reports of replicas stay under
way as long as they like, or for ever; a report may be heard again, as a replica repeats it with each heartbeat;
outcomes may be lost; brokers are killed, lose their power and what they had not flushed, or get an empty disk, and
start again. Time does not exist: what a timeout does may happen at any moment.

Two worlds that differ only in numbers that nobody compares are one: a revision is the present one or an old one, and
``syncStateSetEpoch`` is not counted. Of brokers that are as good as each other anyone may go first: priorities are any,
and ids are names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from eruca.broker.failover import election
from eruca.broker.failover import epochs as lists
from eruca.broker.failover.election import Candidate
from eruca.broker.failover.events import (
    Accept,
    Asked,
    Copied,
    CutTo,
    Event,
    HandOver,
    Join,
    MasterLost,
    MasterSilent,
    Noted,
    Propose,
    Read,
    ReplicaLost,
    Reported,
    StepDown,
    Stored,
    TablesChanged,
    TablesCopied,
    Welcome,
)
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import Member, Rules, State, Step

Label = tuple[object, ...]
"""What happened between two worlds."""
Log = tuple[int, ...]
"""The epoch in which each byte was written, or each change of tables was made."""

OLD, PRESENT = 0, 1
"""Revisions of etcd's key."""
TORN = -1
"""What a log has where a power failure has torn it: no epoch's."""


class Broker(NamedTuple):
    """A broker that runs."""

    member: Member
    log: Log
    tables: Log = ()
    base: int = 0
    """Of a master: how many changes its tables had when it became one; that is its number 1."""

    @property
    def number(self) -> int:
        """Of a master: the number of its last change."""
        return 1 + len(self.tables) - self.base


class Request(NamedTuple):
    """A transaction that is under way to etcd."""

    broker_id: int
    group: Group
    revision: int


class Post(NamedTuple):
    """A report that is under way."""

    to: int
    report: Report


class Bounds(NamedTuple):
    """How large a world may become: messages in a log, epochs, faults of machines, changes of tables (none: nobody has
    tables)."""

    messages: int
    epochs: int
    faults: int
    changes: int = 0


class World(NamedTuple):
    """Everything there is at one moment."""

    group: Group
    brokers: tuple[Broker, ...]
    requests: frozenset[Request] = frozenset()
    posts: frozenset[Post] = frozenset()
    acknowledged: Log = ()
    """The longest log that a client was promised."""
    answered: Log = ()
    """The changes of tables that were answered."""
    faults: int = 0


class Etcd:
    """What etcd does with a transaction."""

    def takes(self, request: Request) -> bool:
        """Whether it is applied: only when the key has not changed since the revision that it names."""
        return request.revision == PRESENT


class Machines:
    """What a broker is after a fault."""

    def store_after_loss(self, member: Member) -> str:
        """Its store id: another one, as its log may lack what it had."""
        return f"{member.store}+"

    in_memory = False
    """Whether the tables are such as are in memory only."""
    flushes_late = False
    """Whether a master gives replicas what it has not flushed yet (SYNC_FLUSH), and a power failure takes that."""

    loses_epochs = False
    """Whether the list of a log's epochs may be gone while the log is there."""

    def damaged_at(self, flushed: int) -> int | None:
        """What a broker knows of its log that the power failure has torn behind what was flushed."""
        return flushed

    def tables_after_kill(self, tables: Log) -> Log:
        """What a broker that is killed has of its tables when it starts again."""
        return () if self.in_memory else tables

    def first(self, group: Group, candidates: list[Candidate]) -> Candidate | None:
        """Who goes first."""
        return election.first(group, candidates)


class Move(NamedTuple):
    """What one broker does at an event."""

    label: Label
    broker: Broker
    """What it is afterwards."""
    asks: frozenset[Request] = frozenset()
    tells: Post | None = None
    shows: Log | None = None
    """What it shows of its log, where that is another part than before."""
    answers: Log | None = None
    """The changes of tables that it, a master, has answered, where these are others than before."""
    begins: bool = False
    """Whether it begins to lead."""


class Welcoming(NamedTuple):
    """A replica shakes hands with its master: its former connection was closed, and what it told there is lost."""

    master: Broker
    moves: tuple[Move, ...]
    """Of the replica, one after the other."""


class Moves:
    """What each broker may do next."""

    def __init__(self, rules: Rules, bounds: Bounds, machines: Machines) -> None:
        self._rules = rules
        self._bounds = bounds
        self._machines = machines

    def does(self, broker: Broker, event: Event) -> Move:
        """What a broker does at an event."""
        step = self._rules.step(broker.member, event)
        member, me = settled(step, broker.log), broker.member.broker_id
        log, base, begins = broker.log, broker.base, False
        asks = []
        for action in step.actions:
            match action:
                case Propose(group, revision):
                    asks.append(Request(me, group._replace(sync_state_set_epoch=0), revision))
                case CutTo(end):
                    log = log[:end]
                case Accept():
                    base, begins = len(broker.tables), True
                case _:
                    pass
        tells = None
        if step.report is not None:
            tells = Post(member.known.group.master_broker_id if member.known is not None else me, step.report)
        if member.proposed is not None and member.proposed.sync_state_set_epoch:
            member = replace(member, proposed=member.proposed._replace(sync_state_set_epoch=0))
        after = Broker(member, log, broker.tables, base)
        shows = log[: member.confirmed] if member.confirmed != broker.member.confirmed else None
        answers = self._answers(after)
        if answers == self._answers(broker):
            answers = None
        bare = self.bare(after)
        return Move((me, event, member.state), bare, frozenset(asks), tells, shows, answers, begins)

    def bare(self, broker: Broker) -> Broker:
        """A broker without what cannot have an effect any more."""
        member = broker.member
        if not self._machines.in_memory and member.has_tables:
            member = replace(member, has_tables=False)
        if member.state is State.MASTER:
            return broker._replace(member=member)
        if member.state is not State.FOLLOWING:
            member = replace(member, tables=0)
        return broker._replace(member=replace(member, confirmed=0, tables_confirmed=0), base=0)

    def _answers(self, broker: Broker) -> Log | None:
        """The changes that a master has answered; None of a broker that has to promise nothing about them."""
        member = broker.member
        if member.state is not State.MASTER or member.known is None:
            return None
        if self._machines.in_memory and len(self._rules.counted(member, member.known)) < 2:
            return None
        return broker.tables[: broker.base + member.tables_confirmed - 1]

    # ---- what may happen next

    def alone(self, broker: Broker, group: Group, others: Sequence[int]) -> Iterator[Move]:
        """What a broker may do at any moment, when etcd has this group."""
        member = broker.member
        if member.known is None or member.known.revision == OLD or member.proposed is not None:
            yield self.does(broker, Read(group, PRESENT))
        if member.state is State.PROMOTING:
            yield self.does(broker, Noted())
        if member.state is State.FOLLOWING:
            yield self.does(broker, MasterLost())
        if member.state is State.MASTER:
            yield from self._leads(broker, others)

    def _leads(self, broker: Broker, others: Sequence[int]) -> Iterator[Move]:
        member = broker.member
        if len(broker.log) < self._bounds.messages:
            longer = broker._replace(log=(*broker.log, member.epoch))
            if self._machines.flushes_late:
                yield Move((member.broker_id, "writes"), longer)
            else:
                yield self.does(longer, Stored(member.end + 1))
        if len(broker.log) > member.end:
            yield self.does(broker, Stored(len(broker.log)))
        if len(broker.tables) < self._bounds.changes:
            changed = broker._replace(tables=(*broker.tables, member.epoch))
            yield self.does(changed, TablesChanged(changed.number))
        for other in others:
            yield self.does(broker, ReplicaLost(other))
            if member.known is not None and member.known.group.master_epoch < self._bounds.epochs:
                yield self.does(broker, HandOver(other))

    def stands(self, broker: Broker) -> Move | None:
        """What a broker does when its turn comes to be elected."""
        known = broker.member.known
        if known is None or known.group.master_epoch >= self._bounds.epochs:
            return None
        move = self.does(flushed(broker), MasterSilent())
        return move if move.broker.member.state is State.CANDIDATE else self.does(broker, MasterSilent())

    def may_stand(self, broker: Broker, brokers: Sequence[Broker]) -> bool:
        """Whether it may be a broker's turn; one that was killed and has lost tables goes only when it is first.

        First of all that are up, with any priorities: those that are as good as it do not come before it.
        """
        member = broker.member
        if member.has_tables or not self._machines.in_memory or member.known is None:
            return True
        me = member.broker_id
        candidates = [each.member.candidate(int(each.member.broker_id != me)) for each in brokers]
        best = self._machines.first(member.known.group, candidates)
        return best is not None and best.broker_id == me

    def welcomed(self, broker: Broker, master: Broker) -> Welcoming | None:
        """What follows when a broker shakes hands with the one that it believes to be the master."""
        if not hears(broker, master):
            return None
        step = self._rules.step(master.member, Asked(broker.member.broker_id))
        [answer] = [action.answer for action in step.actions if isinstance(action, Welcome)]
        if not broker.member.epochs and broker.log == master.log[: len(broker.log)]:
            answer = replace(answer, same=len(broker.log))
        moves = [self.does(flushed(broker), answer)]
        joined = moves[0].broker
        if not self._bounds.changes and joined.member.state is State.FOLLOWING:
            moves.append(self.does(joined, TablesCopied(answer.master_epoch, 1)))
        return Welcoming(self.bare(master._replace(member=step.member)), tuple(moves))

    def copies(self, broker: Broker, master: Broker) -> Iterator[Move]:
        """What a broker that follows may hear of its master."""
        member, its = broker.member, master.member
        if member.state is not State.FOLLOWING or not hears(broker, master):
            return
        epoch, at = master.member.epoch, len(broker.log)
        if self._bounds.changes and member.tables < master.number:
            equal = broker._replace(tables=master.tables)
            yield self.does(equal, TablesCopied(epoch, master.number))
        if at < len(master.log) and (member.tables or not self._bounds.changes):
            yield from self._copies_next(broker, its, master.log[at])
        yield self.does(broker, Copied(epoch, None, at, its.confirmed))

    def _copies_next(self, broker: Broker, its: Member, byte: int) -> Iterator[Move]:
        """The next byte of a master's log comes: its epoch is on the disk first, then it is written, then flushed."""
        member, at = broker.member, len(broker.log)
        part = lists.at(its.epochs, at)
        longer = broker._replace(log=(*broker.log, byte))
        if not self._machines.flushes_late:
            yield self.does(longer, Copied(its.epoch, part, at + 1, its.confirmed))
        elif part is None or part in member.epochs:
            yield Move((member.broker_id, "writes what it copies"), longer)
        else:
            epochs = lists.begin(member.epochs, part.epoch, part.start)
            yield Move((member.broker_id, "notes", part), broker._replace(member=replace(member, epochs=epochs)))

    def told(self, broker: Broker, post: Post) -> Move:
        """What a broker does when it hears a report."""
        return self.does(broker, Reported(post.report))

    def fails(self, broker: Broker, may_be_alone: bool) -> Iterator[Move]:
        """What becomes of a broker by a fault of its machine."""
        member = broker.member
        left = self._machines.tables_after_kill(broker.tables)
        if not (self._machines.in_memory and may_be_alone):
            killed = Member(
                member.broker_id, member.store, len(broker.log), member.epochs, damaged_at=member.damaged_at
            )
            yield Move((member.broker_id, "is killed"), Broker(killed, broker.log, left))
            if self._machines.loses_epochs and member.epochs:
                without = Broker(replace(killed, epochs=()), broker.log, left)
                yield Move((member.broker_id, "is killed, and loses the list of its epochs"), without)
        if self._machines.flushes_late:
            yield from self._loses_power(broker, left)
            return
        store = self._machines.store_after_loss(member)
        for end in sorted({max(member.end - 1, 0), 0}):
            if end < member.end:
                lost = Member(member.broker_id, store, end, lists.cut(member.epochs, end))
                label = (member.broker_id, "loses its log from", end, "on")
                yield Move(label, Broker(lost, broker.log[:end]))

    def _loses_power(self, broker: Broker, left: Log) -> Iterator[Move]:
        """What was flushed remains; what was written behind it may be gone, or torn with something behind it."""
        member, flushed = broker.member, broker.member.end
        for torn in ((), (TORN,), (TORN, member.epoch)):
            damaged_at = member.damaged_at  # the first one
            if damaged_at is None and torn:
                damaged_at = self._machines.damaged_at(flushed)
            end = flushed + len(torn)
            after = Member(member.broker_id, member.store, end, member.epochs, damaged_at=damaged_at)
            yield Move((member.broker_id, "loses power", torn), Broker(after, (*broker.log[:flushed], *torn), left))


def first_world(brokers: int, *, in_set: int = 1) -> World:
    """Broker 0 was the master in epoch 1, of a set of ``in_set`` brokers; nothing is stored."""
    stores = tuple((broker, chr(97 + broker)) for broker in range(in_set))
    group = Group(0, 1, frozenset(range(in_set)), 0, stores)
    return World(group, tuple(Broker(Member(broker, chr(97 + broker)), ()) for broker in range(brokers)))


def settled(step: Step, log: Log) -> Member:
    """What a broker knows after a step: one that leads or follows no more, or another one, flushes what it has."""
    if any(isinstance(action, StepDown | Join) for action in step.actions):
        return replace(step.member, end=len(log))
    return step.member


def flushed(broker: Broker) -> Broker:
    """A broker that has flushed what it has."""
    return broker._replace(member=replace(broker.member, end=len(broker.log)))


def hears(broker: Broker, master: Broker) -> bool:
    """Whether a broker waits for, or has, a connection to this one, and this one is the master in that epoch."""
    member, its = broker.member, master.member
    if member.state not in (State.JOINING, State.FOLLOWING) or its.state is not State.MASTER:
        return False
    assert member.known is not None and its.known is not None
    return its.known.group.master_epoch == member.known.group.master_epoch


def is_repeated(post: Post, report: Report) -> bool:
    """Whether a report takes the place of one that is under way: of the same replica, in the same epoch."""
    old = post.report
    return (old.broker_id, old.store, old.epoch) == (report.broker_id, report.store, report.epoch)


def aged(broker: Broker) -> Broker:
    """A broker when the key changes: what it knows of it is old."""
    known = broker.member.known
    if known is None or known.revision == OLD:
        return broker
    return broker._replace(member=replace(broker.member, known=known._replace(revision=OLD)))
