"""Worlds of a broker group: brokers with the rules of ``eruca.broker.failover``, an etcd, and every order of events.

Owns the search: all worlds that can be reached from a first one within bounds, and what must hold in each. A broker is
a ``Member`` and its log, of which each byte is a message and says in which epoch it was written; and its tables, of
which each change says in which epoch it was made. Whoever follows gets all tables at first, then each change, before
what was written of the log later. What a kill leaves of tables is a question to the machines: all of what is on the
disk (topics, groups), nothing of what is in memory (commits, locks); then who was killed stands as ``election.first``
says, that is after those that were not, and who is alone in the set is not killed: nobody else need have those.
Requests to etcd and reports of replicas stay under way as long as they like, or for ever; outcomes may be lost;
brokers are killed, lose their power and what they had not flushed, or get an empty disk, and start again. Time does
not exist: what a timeout does may happen at any moment.

Two worlds that differ only in numbers that nobody compares are one: a revision is the present one or an old one, and
``syncStateSetEpoch`` is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from eruca.broker.failover import election
from eruca.broker.failover import epochs as lists
from eruca.broker.failover.election import Candidate
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Report
from eruca.broker.failover.member import (
    Accept,
    Asked,
    Changed,
    Copied,
    CutTo,
    Event,
    HandOver,
    Join,
    MasterLost,
    MasterSilent,
    Member,
    NotChanged,
    Note,
    Noted,
    Propose,
    Read,
    ReplicaLost,
    Reported,
    Rules,
    State,
    Stored,
    TablesChanged,
    TablesCopied,
    Tell,
    Welcome,
)

Label = tuple[object, ...]
"""What happened between two worlds."""
Log = tuple[int, ...]
"""The epoch in which each byte was written, or each change of tables was made."""

OLD, PRESENT = 0, 1
"""Revisions of etcd's key."""


class Violation(Exception):
    """What must hold does not; with the way to it."""


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

    forgets = True
    """Whether one that names an old revision can be left out, as it does nothing."""

    def takes(self, world: World, request: Request) -> bool:
        """Whether it is applied: only when the key has not changed since the revision that it names."""
        return request.revision == PRESENT


class Machines:
    """What a broker is after a fault."""

    def store_after_loss(self, member: Member) -> str:
        """Its store id: another one, as its log may lack what it had."""
        return f"{member.store}+"

    in_memory = False
    """Whether the tables are such as are in memory only."""

    def tables_after_kill(self, tables: Log) -> Log:
        """What a broker that is killed has of its tables when it starts again."""
        return () if self.in_memory else tables

    def first(self, group: Group, candidates: list[Candidate]) -> Candidate | None:
        """Who goes first."""
        return election.first(group, candidates)


class Search:
    """All worlds within bounds, breadth first: the way to what it finds wrong is a shortest one."""

    def __init__(
        self, rules: Rules, bounds: Bounds, *, etcd: Etcd | None = None, machines: Machines | None = None
    ) -> None:
        self.states = 0
        self.met: set[tuple[int, int, int]] = set()
        """Epoch, size of the set and number of acknowledged messages of every world."""
        self.answered: set[tuple[int, int, int]] = set()
        """The same with the number of answered changes of tables."""
        self._rules = rules
        self._old_reports_matter = type(rules).counts is not Rules.counts
        self._bounds = bounds
        self._etcd = etcd or Etcd()
        self._machines = machines or Machines()

    def run(self, first: World, *, most: int | None = None) -> bool:
        """Look at every world, or at the first ``most``; whether these were all.

        Raises:
            Violation: what must hold does not in one of them.
        """
        came: dict[int, tuple[int, Label]] = {hash(first): (0, ())}
        level = [first]
        while level and (most is None or len(came) < most):
            following = []
            for world in level:
                number = hash(world)
                epoch, size = world.group.master_epoch, len(world.group.sync_state_set)
                self.met.add((epoch, size, len(world.acknowledged)))
                self.answered.add((epoch, size, len(world.answered)))
                label: Label = ()
                try:
                    for label, after in self._after(world):
                        after = self._canonical(after)
                        other = hash(after)
                        if other not in came:
                            self._check(after)
                            came[other] = (number, label)
                            following.append(after)
                except Violation as wrong:
                    raise Violation("\n".join([*_way(came, number), _told(label), str(wrong)])) from None
            self.states = len(came)
            level = following
        return not level

    def _canonical(self, world: World) -> World:
        """The world without what cannot have an effect any more."""
        requests, posts = world.requests, world.posts
        if requests and self._etcd.forgets:
            requests = frozenset(request for request in requests if request.revision == PRESENT)
        if posts and not self._old_reports_matter:
            posts = frozenset(post for post in posts if _can_count(world.brokers[post.to].member, post.report))
        brokers = tuple(self._bare(broker) for broker in world.brokers)
        return world._replace(brokers=brokers, requests=requests, posts=posts)

    def _bare(self, broker: Broker) -> Broker:
        member = broker.member
        if not self._machines.in_memory and member.has_tables:
            member = replace(member, has_tables=False)
        if member.state is State.MASTER:
            return broker._replace(member=member)
        if member.state is not State.FOLLOWING:
            member = replace(member, tables=0)
        return broker._replace(member=replace(member, confirmed=0, tables_confirmed=0), base=0)

    # ---- what may happen next

    def _after(self, world: World) -> Iterator[tuple[Label, World]]:
        yield from self._etcd_answers(world)
        for post in world.posts:
            yield self._does(world._replace(posts=world.posts - {post}), post.to, Reported(post.report))
        for broker in world.brokers:
            member = broker.member
            me = member.broker_id
            if member.known is None or member.known.revision == OLD or member.proposed is not None:
                yield self._does(world, me, Read(world.group, PRESENT))
            if member.state is State.PROMOTING:
                yield self._does(world, me, Noted())
            if self._may_stand(world, member):
                yield self._does(world, me, MasterSilent())
            if member.state is State.FOLLOWING:
                yield self._does(world, me, MasterLost())
            if member.state in (State.JOINING, State.FOLLOWING):
                yield from self._hears_its_master(world, broker)
            if member.state is State.MASTER:
                yield from self._is_master(world, broker)
            if world.faults < self._bounds.faults:
                yield from self._fails(world, broker)

    def _etcd_answers(self, world: World) -> Iterator[tuple[Label, World]]:
        for request in world.requests:
            rest = world._replace(requests=world.requests - {request})
            me = request.broker_id
            waits = rest.brokers[me].member.proposed == request.group
            if not self._etcd.takes(world, request):
                if waits:
                    yield self._does(rest, me, NotChanged())
                continue
            changed = _aged(rest)._replace(group=request.group)
            yield ("etcd takes over, and the outcome is lost:", request), changed
            if waits:
                yield self._does(changed, me, Changed(PRESENT))

    def _may_stand(self, world: World, member: Member) -> bool:
        """Whether it may be a broker's turn; one that was killed and has lost tables goes only when it is first."""
        known = member.known
        if known is None or known.group.master_epoch >= self._bounds.epochs:
            return False
        return member.has_tables or not self._machines.in_memory or self._is_first(world, member, known.group)

    def _is_first(self, world: World, member: Member, group: Group) -> bool:
        """Whether nobody else goes first who is up."""
        candidates = [
            Candidate(each.broker_id, each.store, each.epoch, each.end, 0, each.has_tables)
            for each in (broker.member for broker in world.brokers)
        ]
        best = self._machines.first(group, candidates)
        return best is not None and best.broker_id == member.broker_id

    def _hears_its_master(self, world: World, broker: Broker) -> Iterator[tuple[Label, World]]:
        member = broker.member
        me = member.broker_id
        assert member.known is not None
        group = member.known.group
        master = world.brokers[group.master_broker_id]
        its = master.member
        if its.state is not State.MASTER or its.known is None or its.known.group.master_epoch != group.master_epoch:
            return
        lost = frozenset(p for p in world.posts if p.report.broker_id == me and p.report.epoch == group.master_epoch)
        step = self._rules.step(its, Asked(me))
        [answer] = [action.answer for action in step.actions if isinstance(action, Welcome)]
        welcomed = _with(world._replace(posts=world.posts - lost), master._replace(member=step.member))
        label, joined = self._does(welcomed, me, answer)
        if not self._bounds.changes and joined.brokers[me].member.state is State.FOLLOWING:
            joined = self._does(joined, me, TablesCopied(group.master_epoch, 1))[1]
        yield label, joined
        if member.state is State.JOINING:
            return
        at = member.end
        if self._bounds.changes and member.tables < master.number:
            equal = _with(world, broker._replace(tables=master.tables))
            yield self._does(equal, me, TablesCopied(group.master_epoch, master.number))
        if at < its.end and (member.tables or not self._bounds.changes):
            part = lists.at(its.epochs, at)
            longer = _with(world, broker._replace(log=(*broker.log, master.log[at])))
            yield self._does(longer, me, Copied(group.master_epoch, part, at + 1, its.confirmed))
        yield self._does(world, me, Copied(group.master_epoch, None, at, its.confirmed))

    def _is_master(self, world: World, broker: Broker) -> Iterator[tuple[Label, World]]:
        member = broker.member
        me = member.broker_id
        if len(broker.log) < self._bounds.messages:
            longer = _with(world, broker._replace(log=(*broker.log, member.epoch)))
            yield self._does(longer, me, Stored(member.end + 1))
        if len(broker.tables) < self._bounds.changes:
            changed = broker._replace(tables=(*broker.tables, member.epoch))
            yield self._does(_with(world, changed), me, TablesChanged(changed.number))
        for other in world.brokers:
            if other.member.broker_id != me:
                yield self._does(world, me, ReplicaLost(other.member.broker_id))
                if member.known is not None and member.known.group.master_epoch < self._bounds.epochs:
                    yield self._does(world, me, HandOver(other.member.broker_id))

    def _fails(self, world: World, broker: Broker) -> Iterator[tuple[Label, World]]:
        member = broker.member
        failed = world._replace(faults=world.faults + 1)
        killed = Member(member.broker_id, member.store, member.end, member.epochs)
        left = self._machines.tables_after_kill(broker.tables)
        if not (self._machines.in_memory and _may_be_alone(world, member.broker_id)):
            yield (member.broker_id, "is killed"), _with(failed, Broker(killed, broker.log, left))
        store = self._machines.store_after_loss(member)
        for end in sorted({max(member.end - 1, 0), 0}):
            if end < member.end:
                lost = Member(member.broker_id, store, end, lists.cut(member.epochs, end))
                yield (member.broker_id, "loses its log from", end, "on"), _with(failed, Broker(lost, broker.log[:end]))

    # ---- what a broker does

    def _does(self, world: World, me: int, event: Event) -> tuple[Label, World]:
        broker = world.brokers[me]
        step = self._rules.step(broker.member, event)
        log, base, requests, posts = broker.log, broker.base, world.requests, world.posts
        for action in step.actions:
            match action:
                case Propose(group, revision):
                    request = Request(me, group._replace(sync_state_set_epoch=0), revision)
                    requests = requests | {request}
                case CutTo(end):
                    log = log[:end]
                case Accept():
                    base = len(broker.tables)
                    self._has_what_was_answered(world, me, broker.tables)
                case Tell(report):
                    to = step.member.known.group.master_broker_id if step.member.known is not None else me
                    older = frozenset(p for p in posts if p.to == to and _same_line(p.report, report))
                    posts = (posts - older) | {Post(to, report)}
                case Note() | Join() | _:
                    pass
        member = step.member
        if member.proposed is not None and member.proposed.sync_state_set_epoch:
            member = replace(member, proposed=member.proposed._replace(sync_state_set_epoch=0))
        new = Broker(member, log, broker.tables, base)
        after = self._answered(_with(world, new)._replace(requests=requests, posts=posts), broker, new)
        return (me, event, member.state), self._promised(after, broker.member, member, log)

    # ---- what must hold

    def _promised(self, world: World, before: Member, member: Member, log: Log) -> World:
        """The world with what a broker acknowledges or shows now."""
        shown = log[: member.confirmed]
        known = world.acknowledged
        if member.confirmed == before.confirmed or shown == known[: len(shown)]:
            return world
        if member.state is not State.MASTER:
            raise Violation(f"{member.broker_id} shows {shown}, but {known} was acknowledged")
        if known != shown[: len(known)]:
            raise Violation(f"{member.broker_id} acknowledges {shown}, but {known} was acknowledged")
        return world._replace(acknowledged=shown)

    def _answered(self, world: World, before: Broker, broker: Broker) -> World:
        """The world with the changes of tables that a master answers now."""
        told, known = self._told(broker), world.answered
        if told is None or told == self._told(before) or told == known[: len(told)]:
            return world
        if known != told[: len(known)]:
            raise Violation(f"{broker.member.broker_id} answers the changes {told}, but {known} were answered")
        return world._replace(answered=told)

    def _told(self, broker: Broker) -> Log | None:
        """The changes that a master has answered; None of a broker that has to promise nothing about them."""
        member = broker.member
        if member.state is not State.MASTER or member.known is None:
            return None
        if self._machines.in_memory and len(self._rules.counted(member, member.known)) < 2:
            return None
        return broker.tables[: broker.base + member.tables_confirmed - 1]

    def _has_what_was_answered(self, world: World, me: int, tables: Log) -> None:
        if tables[: len(world.answered)] != world.answered:
            raise Violation(f"{me} leads with the changes {tables}, but {world.answered} were answered")

    def _check(self, world: World) -> None:
        """Whoever can be elected has all that was acknowledged, and all changes of tables that are on disks."""
        known = world.acknowledged
        for member, log, tables, _ in world.brokers:
            if not self._machines.in_memory and world.group.has(member.broker_id, member.store):
                self._has_what_was_answered(world, member.broker_id, tables)
            if log[: len(known)] != known and world.group.has(member.broker_id, member.store):
                raise Violation(f"{member.broker_id} is in the set with {log}, but {known} was acknowledged")


def first_world(brokers: int, *, in_set: int = 1) -> World:
    """Broker 0 was the master in epoch 1, of a set of ``in_set`` brokers; nothing is stored."""
    stores = tuple((broker, chr(97 + broker)) for broker in range(in_set))
    group = Group(0, 1, frozenset(range(in_set)), 0, stores)
    return World(group, tuple(Broker(Member(broker, chr(97 + broker)), ()) for broker in range(brokers)))


def _with(world: World, broker: Broker) -> World:
    me = broker.member.broker_id
    return world._replace(brokers=(*world.brokers[:me], broker, *world.brokers[me + 1 :]))


def _may_be_alone(world: World, broker_id: int) -> bool:
    """Whether a broker is alone in the set, or is as soon as a request that is under way comes to etcd."""
    groups = [world.group, *(request.group for request in world.requests)]
    return any(group.sync_state_set == {broker_id} for group in groups)


def _same_line(one: Report, other: Report) -> bool:
    return (one.broker_id, one.store, one.epoch) == (other.broker_id, other.store, other.epoch)


def _can_count(member: Member, report: Report) -> bool:
    return member.state is State.MASTER and member.known is not None and member.known.group.master_epoch == report.epoch


def _aged(world: World) -> World:
    """The world when the key changes: what anybody knows of it is old."""
    brokers = tuple(
        broker._replace(member=replace(broker.member, known=broker.member.known._replace(revision=OLD)))
        if broker.member.known is not None
        else broker
        for broker in world.brokers
    )
    requests = frozenset(request._replace(revision=OLD) for request in world.requests)
    return world._replace(brokers=brokers, requests=requests)


def _way(came: dict[int, tuple[int, Label]], number: int) -> list[str]:
    way = []
    while number:
        number, label = came[number]
        way.append(_told(label))
    return way[::-1]


def _told(label: Label) -> str:
    return " ".join(str(part) for part in label)
