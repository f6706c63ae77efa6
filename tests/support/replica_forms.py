"""Which worlds of a broker group are as good as each other: the forms to which a search of them keeps.

Owns the reductions of ``replica_search``, on single brokers and groups. A world may be replaced by another one when
that one can be reached, too, and whatever goes wrong after the first one goes wrong after it. In order:

1. **What a follower would learn at once.** A broker that leads nothing and knows no group, or the present epoch's with
   an older set, reads etcd. Who has read can do all that it could before: it can go on copying, lose its master, and be
   asked again after the next change. No world is left out in which it is late: it is late again with the next change
   of the key, and what it had heard of an *earlier* epoch it keeps as long as somebody may lead in that.
2. **A master that nobody will ever be.** Nobody leads twice in an epoch, nor in one that it learnt of by reading
   (``may_lead``). A broker that waits for such a master, or follows it, seeks one: it can be elected, read etcd and
   fail, as one that seeks. What it knows of such an epoch it forgets when that is not etcd's any more: it can only ask
   for a change that etcd does not take, and read etcd then. Except that it may ask for what etcd has, or will have, as
   a former life of it asked for the same (``echo``): then it would take that for its own election, and it remains.
3. **What is known of the sets of old.** Of a group that is not etcd's any more, a broker that leads nothing uses the
   epoch and the master; and the rest to stand, in vain but for an echo: after that it reads etcd, as it could before.
   One that has lost the list of its epochs stands when it has followed; until then it uses the size of the set, too.
4. **Replicas that are nothing to their master.** One outside the set, and not proposed for it, that is lost, or has not
   what it needs to be taken in: what is confirmed never falls, so only another report of it changes that.
5. **Names.** Brokers are what they are, whatever their ids: of worlds that differ in these only, one stands for all.
   No rule asks for an id but to name a broker, and to choose between equals (``Moves.may_stand``: anybody).

A test compares the worlds that are reached by way of forms with the forms of all worlds. Reports need no reduction: who
follows a master that lives has always one under way.
"""

from __future__ import annotations

from msgspec.structs import replace

from eruca.broker.failover import election, in_sync
from eruca.broker.failover.events import Read
from eruca.broker.failover.group import Group
from eruca.broker.failover.in_sync import Replica, Replicas
from eruca.broker.failover.member import Known, Member, Rules, State
from tests.support.replica_worlds import OLD, PRESENT, Broker, Post, Request, settled

Names = tuple[int, ...]
"""The new id of each broker."""

_FREE = (State.SEEKING, State.JOINING, State.FOLLOWING)


def awaited(broker: Broker) -> tuple[int, int] | None:
    """The master that a broker follows or waits for, and the epoch of that one."""
    known = broker.member.known
    if broker.member.state not in (State.JOINING, State.FOLLOWING) or known is None:
        return None
    return known.group.master_broker_id, known.group.master_epoch


class Forms:
    """The forms of single brokers, by these rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def may_lead(self, broker: Broker, epoch: int) -> bool:
        """Whether a broker leads in an epoch that etcd has reached, or may do so yet: it is elected in it, has asked to
        be, or may still ask as it knows an earlier one only."""
        member, known = broker.member, broker.member.known
        if known is None or member.state is State.BARRED:
            return False
        if member.state in (State.PROMOTING, State.MASTER):
            return known.group.master_epoch == epoch
        if member.proposed is not None:
            return member.proposed.master_epoch == epoch
        return known.group.master_epoch < epoch and self._may_stand_later(member, known)

    def echo(self, broker: Broker) -> Group | None:
        """What a broker asks, or would ask, of an etcd that has moved on since it read it."""
        member, known = broker.member, broker.member.known
        if known is None or known.revision == PRESENT:
            return None
        if member.state is State.CANDIDATE:
            return member.proposed
        if member.state not in _FREE or not self._may_stand_later(member, known):
            return None
        return known.group.elect(member.broker_id, member.store)._replace(sync_state_set_epoch=0)

    def _may_stand_later(self, member: Member, known: Known) -> bool:
        """Whether a member may stand, at once or when it has followed: then it has a list of epochs."""
        return self._rules.may_stand(member if member.epochs else replace(member, end=0), known)

    def settled(self, broker: Broker, group: Group, *, leads: bool, awaits: bool, echoes: bool) -> Broker:
        """The form of a broker when etcd has a group, by reductions 1 to 4.

        Args:
            leads: whether the group's master leads in its epoch, or may do so
            awaits: the same of the one that the broker waits for
            echoes: whether etcd has, or may get by a request that is under way, what ``echo`` says
        """
        member, known = broker.member, broker.member.known
        if member.state is State.MASTER:
            return broker._replace(member=_trimmed(member))
        if member.state not in (*_FREE, State.CANDIDATE):
            return broker
        if known is not None and (member.state is State.CANDIDATE or known.group.master_epoch < group.master_epoch):
            if known.revision == PRESENT:
                return broker
            if awaits or echoes:
                return broker._replace(member=_remembering(member, known.group, awaits=awaits, echoes=echoes))
            member, known = replace(member, state=State.SEEKING, known=None, proposed=None, tables=0), None
        if known is None or known.revision == OLD:
            step = self._rules.step(member, Read(group, PRESENT))
            member = settled(step, broker.log)
        if not leads and member.state in _FREE:
            member = replace(member, state=State.SEEKING, tables=0)
        elif member.state is not State.FOLLOWING:
            member = replace(member, tables=0)
        return broker._replace(member=member)


def _remembering(member: Member, group: Group, *, awaits: bool, echoes: bool) -> Member:
    mine: frozenset[int] = frozenset((member.broker_id,)) if echoes else frozenset()
    if echoes and election.lacks_epochs(group, member.epoch, member.sound_end):
        mine = group.sync_state_set
    group = group._replace(sync_state_set=mine, stores=group.stores if echoes else ())
    if member.state is State.CANDIDATE or not awaits:
        group = group._replace(master_broker_id=member.broker_id)
    member = replace(member, known=Known(group, OLD))
    return member if awaits or member.state is State.CANDIDATE else replace(member, state=State.SEEKING, tables=0)


def _trimmed(member: Member) -> Member:
    known, proposed = member.known, member.proposed
    assert known is not None
    members = in_sync.counted(known.group, proposed)
    least = max(member.confirmed, member.epochs[-1].start)

    def matters(replica: Replica) -> bool:
        if not replica.follows:
            return replica.broker_id in members
        if known.group.has(replica.broker_id, replica.store):
            return True
        if proposed is not None and proposed.has(replica.broker_id, replica.store):
            return True
        return replica.end >= least and replica.tables >= member.tables_confirmed

    kept = tuple(replica for replica in member.replicas if matters(replica))
    return replace(member, replicas=kept) if len(kept) < len(member.replicas) else member


# ---- names


def nameless(broker: Broker, group: Group) -> tuple[object, ...]:
    """What can be said of a broker without ids: equal for two that differ in names only."""
    member, me = broker.member, broker.member.broker_id
    known, proposed = member.known, member.proposed
    return (
        member.state.value,
        _of_group(group, me),
        member.end,
        member.epochs,
        member.store[1:],
        (_of_group(known.group, me), known.revision) if known is not None else None,
        _of_group(proposed, me) if proposed is not None else None,
        (
            member.confirmed,
            member.tables,
            member.tables_confirmed,
            member.has_tables,
            member.forgotten,
            member.sound_end,
        ),
        tuple(sorted((each.store[1:], each.end, each.follows, each.tables) for each in member.replicas)),
        broker[1:],
    )


def _of_group(group: Group, me: int) -> tuple[object, ...]:
    mine = tuple(store[1:] for broker_id, store in group.stores if broker_id == me)
    return group.master_epoch, group.master_broker_id == me, me in group.sync_state_set, mine, len(group.sync_state_set)


def renamed(broker: Broker, names: Names) -> Broker:
    """The same broker, when all have other names."""
    member = broker.member
    known, proposed = member.known, member.proposed
    member = replace(
        member,
        broker_id=names[member.broker_id],
        store=_store(member.store, names),
        known=Known(renamed_group(known.group, names), known.revision) if known is not None else None,
        proposed=renamed_group(proposed, names) if proposed is not None else None,
        replicas=_replicas(member.replicas, names),
    )
    return broker._replace(member=member)


def renamed_group(group: Group, names: Names) -> Group:
    """The same group, when all have other names."""
    return group._replace(
        master_broker_id=names[group.master_broker_id],
        sync_state_set=frozenset(names[each] for each in group.sync_state_set),
        stores=tuple(sorted((names[each], _store(store, names)) for each, store in group.stores)),
    )


def renamed_request(request: Request, names: Names) -> Request:
    """The same request, when all have other names."""
    return Request(names[request.broker_id], renamed_group(request.group, names), request.revision)


def renamed_post(post: Post, names: Names) -> Post:
    """The same report, when all have other names."""
    report = post.report
    report = replace(report, broker_id=names[report.broker_id], store=_store(report.store, names))
    return Post(names[post.to], report)


def _replicas(replicas: Replicas, names: Names) -> Replicas:
    return tuple(
        sorted(
            replace(each, broker_id=names[each.broker_id], store=_store(each.store, names) if each.store else "")
            for each in replicas
        )
    )


def _store(store: str, names: Names) -> str:
    """Stores are named after their brokers: a, a+, b, ..."""
    return chr(97 + names[ord(store[0]) - 97]) + store[1:]
