"""The search of all worlds of a broker group within bounds, and what must hold in each.

Owns the order of the search, and how it gets along with many worlds: a world is the numbers of its parts, each part is
made once, and what a broker does at an event is asked of the rules once, as they are pure functions. Of worlds that are
as good as each other (``replica_forms``) it looks at one. Nothing is told apart by a hash: a search that ends is
complete.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Hashable, Iterator
from functools import cache, lru_cache
from itertools import pairwise, permutations
from typing import Generic, NamedTuple, TypeVar

from eruca.broker.failover.events import Changed
from eruca.broker.failover.group import Group
from eruca.broker.failover.member import Rules, State
from tests.support import replica_forms as forms
from tests.support.replica_worlds import (
    OLD,
    PRESENT,
    Bounds,
    Broker,
    Etcd,
    Label,
    Log,
    Machines,
    Move,
    Moves,
    Post,
    Request,
    World,
    aged,
    is_repeated,
)

Numbered = tuple[int, ...]
"""A world: the numbers of its group, requests, posts, of the logs that were acknowledged and answered, its faults, and
the numbers of its brokers."""
BROKERS = 6
"""Where the brokers begin."""
NOTHING = 0
"""The number of no requests, posts or entries of a log."""
NEAR = 1 << 18
"""Of how many worlds the search remembers the forms: it comes to most of them several times within a short while."""


class Violation(Exception):
    """What must hold does not; with the way to it."""


class Done(NamedTuple):
    """A ``Move`` in numbers."""

    broker: int
    asks: int
    tells: Post | None
    shows: int | None
    answers: int | None
    accepts: int | None
    """The tables of a broker that begins to lead."""
    leads: bool
    plain: bool
    """Whether nothing outside of the broker changes."""
    label: Label


class Welcome(NamedTuple):
    """A ``Welcoming`` in numbers."""

    master: int
    at: int
    epoch: int
    moves: tuple[Done, ...]


class Facts(NamedTuple):
    """What is asked of a broker again and again."""

    leads: int
    """The epoch in which it is the master; 0 of one that is not."""
    awaited: tuple[int, int] | None
    echo: Group | None


Part = TypeVar("Part", bound=Hashable)


class Numbers(Generic[Part]):
    """A number for each of the different parts."""

    def __init__(self, *first: Part) -> None:
        self.parts: list[Part] = []
        self._numbers: dict[Part, int] = {}
        for part in first:
            self.of(part)

    def of(self, part: Part) -> int:
        """The number of a part."""
        number = self._numbers.setdefault(part, len(self.parts))
        if number == len(self.parts):
            self.parts.append(part)
        return number


class Search:
    """All worlds within bounds, breadth first: the way to what it finds wrong is a shortest one.

    Without ``reduces`` it looks at each world.
    """

    def __init__(
        self,
        rules: Rules,
        bounds: Bounds,
        *,
        etcd: Etcd | None = None,
        machines: Machines | None = None,
        reduces: bool = True,
    ) -> None:
        self.met: set[tuple[int, int, int]] = set()
        """Epoch, size of the set and number of acknowledged messages of every world."""
        self.answered: set[tuple[int, int, int]] = set()
        """The same with the number of answered changes of tables."""
        self._bounds = bounds
        self._etcd = etcd or Etcd()
        self._in_memory = machines is not None and machines.in_memory
        self._reduces = reduces
        self._old_reports_matter = type(rules).counts is not Rules.counts
        self._all = Moves(rules, bounds, machines or Machines())
        self._forms = forms.Forms(rules)
        self._came: dict[bytes, bytes] = {}
        self._size = 0
        self._groups: Numbers[Group] = Numbers()
        self._requests: Numbers[frozenset[Request]] = Numbers(frozenset())
        self._posts: Numbers[frozenset[Post]] = Numbers(frozenset())
        self._logs: Numbers[Log] = Numbers(())
        self._brokers: Numbers[Broker] = Numbers()
        self._ranks: Numbers[tuple[object, ...]] = Numbers()
        # functions of numbers, which give the same each time
        self._alone = cache(self._find_alone)
        self._stands = cache(self._find_stand)
        self._may_stand = cache(self._find_may_stand)
        self._welcomed = cache(self._find_welcomed)
        self._copies = cache(self._find_copies)
        self._told = cache(self._find_told)
        self._fails = cache(self._find_fails)
        self._taken = cache(self._find_taken)
        self._aged = cache(self._find_aged)
        self._changed = cache(self._find_changed)
        self._waiting = cache(self._find_waiting)
        self._may_be_alone = cache(self._find_may_be_alone)
        self._master = cache(self._find_master)
        self._asked = cache(self._find_asked)
        self._posted = cache(self._find_posted)
        self._closed = cache(self._find_closed)
        self._countable = cache(self._find_countable)
        self._of = cache(self._find_out)
        self._may_lead = cache(self._find_may_lead)
        self._echoes = cache(self._find_echoes)
        self._settled = cache(self._find_settled)
        self._rank = cache(self._find_rank)
        self._renamed = cache(self._find_renamed)
        self._renamed_broker = cache(self._find_renamed_broker)
        self._lacks = cache(self._find_lacks)

    @property
    def states(self) -> int:
        """The number of worlds that it has looked at."""
        return len(self._came)

    def run(self, first: World, *, most: int | None = None) -> bool:
        """Look at every world, or at the first ``most``; whether these were all.

        Raises:
            Violation: what must hold does not in one of them.
        """
        gc.disable()  # nothing here is a cycle, and it would look at all of it again and again
        try:
            return self._run(first, most)
        finally:
            gc.enable()

    def _run(self, first: World, most: int | None) -> bool:
        self._size = len(first.brokers)
        packed = struct.Struct(f"<{BROKERS + self._size}I")
        came, unpack = self._came, packed.unpack

        @lru_cache(NEAR)
        def form(world: Numbered) -> bytes:
            return packed.pack(*self._least(self._normal(world)))

        begin = self._normal(self._numbered(first))
        level = [form(begin)]
        came[level[0]] = b""
        met: set[Numbered] = set()
        while level and (most is None or len(came) < most):
            following = []
            for key in level:
                world = unpack(key)
                met.add((world[0], world[3], world[4]))
                try:
                    for _, after in self._after(world):
                        other = form(after)
                        if other not in came:
                            came[other] = key
                            following.append(other)
                            if self._lacking(unpack(other)):
                                raise Violation
                except Violation:
                    raise Violation("\n".join(self._way(packed, begin, key))) from None
            level = following
        for group_number, acknowledged, answered in met:
            group = self._groups.parts[group_number]
            epoch, size = group.master_epoch, len(group.sync_state_set)
            self.met.add((epoch, size, len(self._logs.parts[acknowledged])))
            self.answered.add((epoch, size, len(self._logs.parts[answered])))
        return not level

    def worlds(self) -> Iterator[World]:
        """All that it has looked at."""
        packed = struct.Struct(f"<{BROKERS + self._size}I")
        for key in self._came:
            yield self._world(packed.unpack(key))

    def form(self, world: World) -> World:
        """The one that this search looks at in place of a world."""
        return self._world(self._least(self._normal(self._numbered(world))))

    def _numbered(self, world: World) -> Numbered:
        return (
            self._groups.of(world.group),
            self._requests.of(world.requests),
            self._posts.of(world.posts),
            self._logs.of(world.acknowledged),
            self._logs.of(world.answered),
            world.faults,
            *(self._brokers.of(broker) for broker in world.brokers),
        )

    def _world(self, world: Numbered) -> World:
        group, requests, posts, acknowledged, answered, faults, *brokers = world
        return World(
            self._groups.parts[group],
            tuple(self._brokers.parts[broker] for broker in brokers),
            self._requests.parts[requests],
            self._posts.parts[posts],
            self._logs.parts[acknowledged],
            self._logs.parts[answered],
            faults,
        )

    def _way(self, packed: struct.Struct, world: Numbered, key: bytes) -> list[str]:
        """What happened from a world to what went wrong after that of a key, with the same names all the way."""
        keys = [key]
        while key := self._came[key]:
            keys.append(key)
        way = []
        for key in keys[-2::-1]:
            for label, after in self._after(world):
                after = self._normal(after)
                if packed.pack(*self._least(after)) == key:
                    way.append(_words(label))
                    world = after
                    break
        try:
            for label, after in self._after(world):
                if lacks := self._lacking(self._normal(after)):
                    return [*way, _words(label), lacks]
        except Violation as wrong:
            return [*way, str(wrong)]
        raise AssertionError("what goes wrong after a world does not with other names")

    # ---- what may happen next

    def _after(self, world: Numbered) -> Iterator[tuple[Label, Numbered]]:
        group, requests, posts, _, _, faults, *brokers = world
        if requests:
            yield from self._etcd_answers(world)
        if posts:
            for to, post in self._waiting(posts):
                yield self._with(world, to, self._told(brokers[to], post))
        fails, in_memory = faults < self._bounds.faults, self._in_memory
        for me, broker in enumerate(brokers):
            for done in self._alone(broker, group):
                yield self._with(world, me, done)
            stands = self._stands(broker)
            if stands is not None and (not in_memory or self._may_stand(broker, tuple(brokers))):
                yield self._with(world, me, stands)
            awaited = self._of(broker).awaited
            if awaited is not None:
                master = brokers[awaited[0]]
                welcome = self._welcomed(broker, master)
                if welcome is not None:
                    yield self._joined(world, me, welcome)
                    for done in self._copies(broker, master):
                        yield self._with(world, me, done)
            if fails:
                for done in self._fails(broker, in_memory and self._may_be_alone(group, requests, me)):
                    label, after = self._with(world, me, done)
                    yield label, (*after[:5], faults + 1, *after[BROKERS:])

    def _etcd_answers(self, world: Numbered) -> Iterator[tuple[Label, Numbered]]:
        for me, group, rest in self._taken(world[1]):
            brokers = [self._aged(broker) for broker in world[BROKERS:]]
            taken = (group, rest, *world[2:BROKERS], *brokers)
            yield ("etcd takes over, and the outcome is lost:", self._groups.parts[group]), taken
            done = self._changed(brokers[me], group)
            if done is not None:
                yield self._with(taken, me, done)

    def _joined(self, world: Numbered, me: int, welcome: Welcome) -> tuple[Label, Numbered]:
        posts = self._closed(world[2], me, welcome.epoch) if world[2] else NOTHING
        at = BROKERS + welcome.at
        after = (*world[:2], posts, *world[3:at], welcome.master, *world[at + 1 :])
        for done in welcome.moves:
            _, after = self._with(after, me, done)
        return welcome.moves[0].label, after

    def _with(self, world: Numbered, me: int, done: Done) -> tuple[Label, Numbered]:
        """The world after what a broker has done."""
        at = BROKERS + me
        if done.plain:
            return done.label, (*world[:at], done.broker, *world[at + 1 :])
        group, requests, posts, acknowledged, answered, faults = world[:BROKERS]
        if done.asks:
            requests = self._asked(requests, done.asks)
        if done.tells is not None:
            posts = self._posted(posts, done.tells)
        if done.accepts is not None:
            self._has_what_was_answered(done.accepts, answered, done.label)
        if done.answers is not None:
            answered = self._answered(answered, done)
        if done.shows is not None:
            acknowledged = self._promised(acknowledged, done)
        after = (group, requests, posts, acknowledged, answered, faults)
        return done.label, (*after, *world[BROKERS:at], done.broker, *world[at + 1 :])

    # ---- what must hold

    def _promised(self, acknowledged: int, done: Done) -> int:
        """The log that was acknowledged when a broker acknowledges or shows what it does now."""
        assert done.shows is not None
        known, shown = self._logs.parts[acknowledged], self._logs.parts[done.shows]
        if shown == known[: len(shown)]:
            return acknowledged
        if not done.leads:
            raise Violation(f"{_words(done.label)}\nit shows {shown}, but {known} was acknowledged")
        if known != shown[: len(known)]:
            raise Violation(f"{_words(done.label)}\nit acknowledges {shown}, but {known} was acknowledged")
        return done.shows

    def _answered(self, answered: int, done: Done) -> int:
        """The changes of tables that were answered when a master answers what it does now."""
        assert done.answers is not None
        known, told = self._logs.parts[answered], self._logs.parts[done.answers]
        if told == known[: len(told)]:
            return answered
        if known != told[: len(known)]:
            raise Violation(f"{_words(done.label)}\nit answers the changes {told}, but {known} were answered")
        return done.answers

    def _has_what_was_answered(self, tables: int, answered: int, label: Label) -> None:
        has, known = self._logs.parts[tables], self._logs.parts[answered]
        if has[: len(known)] != known:
            raise Violation(f"{_words(label)}\nit leads with the changes {has}, but {known} were answered")

    def _lacking(self, world: Numbered) -> str:
        """Whoever can be elected has all that was acknowledged, and all changes of tables that are on disks: or not."""
        group, _, _, acknowledged, answered, _, *brokers = world
        for broker in brokers:
            if lacks := self._lacks(group, broker, acknowledged, answered):
                return lacks
        return ""

    def _find_lacks(self, group: int, broker: int, acknowledged: int, answered: int) -> str:
        member, log, tables, _ = self._brokers.parts[broker]
        if not self._groups.parts[group].has(member.broker_id, member.store):
            return ""
        known, changes = self._logs.parts[acknowledged], self._logs.parts[answered]
        if log[: len(known)] != known:
            return f"{member.broker_id} is in the set with {log}, but {known} was acknowledged"
        if not self._in_memory and tables[: len(changes)] != changes:
            return f"{member.broker_id} is in the set with the changes {tables}, but {changes} were answered"
        return ""

    # ---- the form of a world

    def _normal(self, world: Numbered) -> Numbered:
        """The world without what cannot have an effect any more."""
        group, requests, posts, *_ = world
        brokers = world[BROKERS:]
        if posts and not self._old_reports_matter:
            posts = self._countable(posts, tuple([self._of(broker).leads for broker in brokers]))
            world = (group, requests, posts, *world[3:])
        if not self._reduces:
            return world
        master, epoch = self._master(group)
        while True:
            leads = self._may_lead(brokers[master], epoch)
            settled = []
            for broker in brokers:
                _, awaited, echo = self._of(broker)
                awaits = awaited is not None and self._may_lead(brokers[awaited[0]], awaited[1])
                echoes = echo is not None and self._echoes(echo, group, requests)
                settled.append(self._settled(broker, group, leads, awaits, echoes))
            after = tuple(settled)
            if after == brokers:
                return (*world[:BROKERS], *brokers)
            brokers = after

    def _least(self, world: Numbered) -> Numbered:
        """Of the worlds that differ from this one in names only, the one that stands for all."""
        if not self._reduces:
            return world
        group, brokers = world[0], world[BROKERS:]
        ranks = [self._rank(broker, group) for broker in brokers]
        orders = _orders(tuple(ranks))
        if len(orders) == 1:
            return self._named(world, orders[0])
        return min(self._named(world, order) for order in orders)

    def _named(self, world: Numbered, order: tuple[int, ...]) -> Numbered:
        """The world whose broker 0 is the first of this order."""
        if order == tuple(range(len(order))):
            return world
        group, requests, posts = self._renamed(world[:3], order)
        brokers = world[BROKERS:]
        return (
            group,
            requests,
            posts,
            *world[3:BROKERS],
            *(self._renamed_broker(brokers[broker], order) for broker in order),
        )

    # ---- what the functions of numbers find

    def _done(self, move: Move) -> Done:
        member = move.broker.member
        asks = frozenset(request for request in move.asks if self._etcd.takes(request))
        shows = self._logs.of(move.shows) if move.shows is not None else None
        answers = self._logs.of(move.answers) if move.answers is not None else None
        accepts = self._logs.of(move.broker.tables) if move.begins else None
        plain = not asks and move.tells is None and shows is None and answers is None and accepts is None
        number, asked = self._brokers.of(move.broker), self._requests.of(asks)
        leads = member.state is State.MASTER
        return Done(number, asked, move.tells, shows, answers, accepts, leads, plain, move.label)

    def _find_alone(self, broker: int, group: int) -> tuple[Done, ...]:
        it = self._brokers.parts[broker]
        others = [each for each in range(self._size) if each != it.member.broker_id]
        return tuple(self._done(move) for move in self._all.alone(it, self._groups.parts[group], others))

    def _find_stand(self, broker: int) -> Done | None:
        move = self._all.stands(self._brokers.parts[broker])
        return self._done(move) if move is not None else None

    def _find_may_stand(self, broker: int, brokers: tuple[int, ...]) -> bool:
        parts = self._brokers.parts
        return self._all.may_stand(parts[broker], [parts[each] for each in brokers])

    def _find_welcomed(self, broker: int, master: int) -> Welcome | None:
        its = self._brokers.parts[master]
        welcoming = self._all.welcomed(self._brokers.parts[broker], its)
        if welcoming is None:
            return None
        moves = tuple(self._done(move) for move in welcoming.moves)
        return Welcome(self._brokers.of(welcoming.master), its.member.broker_id, its.member.epoch, moves)

    def _find_copies(self, broker: int, master: int) -> tuple[Done, ...]:
        parts = self._brokers.parts
        return tuple(self._done(move) for move in self._all.copies(parts[broker], parts[master]))

    def _find_told(self, broker: int, post: Post) -> Done:
        return self._done(self._all.told(self._brokers.parts[broker], post))

    def _find_fails(self, broker: int, may_be_alone: bool) -> tuple[Done, ...]:
        return tuple(self._done(move) for move in self._all.fails(self._brokers.parts[broker], may_be_alone))

    def _find_may_be_alone(self, group: int, requests: int, me: int) -> bool:
        """Whether a broker is alone in the set, or is as soon as a request that is under way comes to etcd."""
        groups = [self._groups.parts[group], *(request.group for request in self._requests.parts[requests])]
        return any(each.sync_state_set == {me} for each in groups)

    def _find_taken(self, requests: int) -> tuple[tuple[int, int, int], ...]:
        """Whose request etcd may take next, what it has then, and which ones of the others it may take later."""
        under_way = self._requests.parts[requests]
        taken = []
        for request in under_way:
            later = (each._replace(revision=OLD) for each in under_way - {request})
            rest = frozenset(each for each in later if self._etcd.takes(each))
            taken.append((request.broker_id, self._groups.of(request.group), self._requests.of(rest)))
        return tuple(taken)

    def _find_changed(self, broker: int, group: int) -> Done | None:
        """What a broker does that hears that etcd has taken this, if it waits for that."""
        it = self._brokers.parts[broker]
        if it.member.proposed != self._groups.parts[group]:
            return None
        return self._done(self._all.does(it, Changed(PRESENT)))

    def _find_aged(self, broker: int) -> int:
        return self._brokers.of(aged(self._brokers.parts[broker]))

    def _find_asked(self, requests: int, more: int) -> int:
        return self._requests.of(self._requests.parts[requests] | self._requests.parts[more])

    def _find_posted(self, posts: int, post: Post) -> int:
        kept = (each for each in self._posts.parts[posts] if each.to != post.to or not is_repeated(each, post.report))
        return self._posts.of(frozenset((*kept, post)))

    def _find_closed(self, posts: int, me: int, epoch: int) -> int:
        under_way = self._posts.parts[posts]
        return self._posts.of(
            frozenset(post for post in under_way if (post.report.broker_id, post.report.epoch) != (me, epoch))
        )

    def _find_countable(self, posts: int, leads: tuple[int, ...]) -> int:
        under_way = self._posts.parts[posts]
        return self._posts.of(frozenset(post for post in under_way if post.report.epoch == leads[post.to]))

    def _find_waiting(self, posts: int) -> tuple[tuple[int, Post], ...]:
        return tuple((post.to, post) for post in self._posts.parts[posts])

    def _find_out(self, broker: int) -> Facts:
        it = self._brokers.parts[broker]
        member = it.member
        leads = member.known.group.master_epoch if member.state is State.MASTER and member.known is not None else 0
        return Facts(leads, forms.awaited(it), self._forms.echo(it))

    def _find_master(self, group: int) -> tuple[int, int]:
        return self._groups.parts[group].master_broker_id, self._groups.parts[group].master_epoch

    def _find_may_lead(self, broker: int, epoch: int) -> bool:
        return self._forms.may_lead(self._brokers.parts[broker], epoch)

    def _find_echoes(self, echo: Group, group: int, requests: int) -> bool:
        return echo == self._groups.parts[group] or any(
            echo == request.group for request in self._requests.parts[requests]
        )

    def _find_settled(self, broker: int, group: int, leads: bool, awaits: bool, echoes: bool) -> int:
        it, etcds = self._brokers.parts[broker], self._groups.parts[group]
        return self._brokers.of(self._forms.settled(it, etcds, leads=leads, awaits=awaits, echoes=echoes))

    def _find_rank(self, broker: int, group: int) -> int:
        return self._ranks.of(forms.nameless(self._brokers.parts[broker], self._groups.parts[group]))

    def _find_renamed(self, parts: tuple[int, int, int], order: tuple[int, ...]) -> tuple[int, int, int]:
        group, requests, posts = parts
        names = _names(order)
        return (
            self._groups.of(forms.renamed_group(self._groups.parts[group], names)),
            self._requests.of(frozenset(forms.renamed_request(each, names) for each in self._requests.parts[requests])),
            self._posts.of(frozenset(forms.renamed_post(each, names) for each in self._posts.parts[posts])),
        )

    def _find_renamed_broker(self, broker: int, order: tuple[int, ...]) -> int:
        return self._brokers.of(forms.renamed(self._brokers.parts[broker], _names(order)))


@cache
def _orders(ranks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All orders of brokers in which these ranks do not fall."""
    return [
        order
        for order in permutations(range(len(ranks)))
        if all(ranks[one] <= ranks[other] for one, other in pairwise(order))
    ]


@cache
def _names(order: tuple[int, ...]) -> forms.Names:
    """The new id of each broker, when the brokers are put into this order."""
    return tuple(order.index(broker) for broker in range(len(order)))


def _words(label: Label) -> str:
    return " ".join(str(part) for part in label)
