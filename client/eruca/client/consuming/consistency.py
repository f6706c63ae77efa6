"""Comparison of subscriptions: members of a group that subscribe differently lose messages, without any error.

Owns the comparison, and one warning that names both members and the difference. A member asks one other, the next in
the order of client ids, through a broker (307), when the members changed and then every few minutes. As each member is
asked by one other, at least two see any difference. Facts: ConsumerRunningInfo.analyzeSubscription in 4.9.7, which
mqadmin uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from eruca.client.errors import ClientError
from eruca.client.log import log
from eruca.client.network.session import Session
from eruca.protocol import api, names
from eruca.protocol.bodies import ConsumerRunningInfo, SubscriptionData
from eruca.protocol.errors import ProtocolError
from eruca.protocol.headers.clients import ConsumerRunningInfoOf
from eruca.protocol.subscription import ALL, is_tag_type

COMPARE_EVERY = 300.0
"""Seconds between two comparisons while the members are the same."""
TIMEOUT = 5.0


def differences(own: Iterable[SubscriptionData], others: Iterable[SubscriptionData]) -> list[str]:
    """What differs, a sentence for each topic; the group's retry topic does not count."""
    mine, theirs = _by_topic(own), _by_topic(others)
    found = []
    for topic in sorted(mine.keys() | theirs.keys()):
        if topic not in theirs:
            found.append(f"{topic} is subscribed only here")
        elif topic not in mine:
            found.append(f"{topic} is subscribed only there")
        elif _wanted(mine[topic]) != _wanted(theirs[topic]):
            found.append(f"of {topic} this member wants {_text(mine[topic])}, that one {_text(theirs[topic])}")
    return found


def _by_topic(subscriptions: Iterable[SubscriptionData]) -> dict[str, SubscriptionData]:
    return {each.topic: each for each in subscriptions if not names.is_retry_topic(each.topic)}


def _wanted(subscription: SubscriptionData) -> object:
    """What an expression means, however it is written."""
    if is_tag_type(subscription.expression_type):
        return frozenset(subscription.tags_set)
    return subscription.expression_type, (subscription.sub_string or "").strip()


def _text(subscription: SubscriptionData) -> str:
    kind = "" if is_tag_type(subscription.expression_type) else f"{subscription.expression_type} "
    return f'{kind}"{subscription.sub_string or ALL}"'


def neighbour(own: str, members: Iterable[str]) -> str | None:
    """The member after this one in the order of client ids, the first after the last; None for a lonely one."""
    others = sorted(set(members) - {own})
    return next((each for each in others if each > own), others[0]) if others else None


class Comparison:
    """Compares one member's subscriptions with those of the next; ``members`` gives the client ids known last."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        members: Callable[[], Sequence[str]],
    ) -> None:
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._members = members
        self._seen: tuple[str, ...] = ()
        self.due = 0.0
        self._logged: tuple[str, ...] = ()

    async def look(self, now: float) -> None:
        """Compare if it is time to; ``now`` in seconds."""
        members = tuple(self._members())
        if members == self._seen and now < self.due:
            return
        self._seen, self.due = members, now + COMPARE_EVERY
        other = neighbour(self._session.client_id, members)
        if other is None:
            return
        theirs = await self._ask(other)
        if theirs is None:
            return
        found = differences(self._subscriptions.values(), map(self._session.names.subscription_from_broker, theirs))
        if not found:
            self._logged = ()
        elif self._logged != (found_now := (other, *found)):
            self._logged = found_now
            log.warning(
                "members of %s subscribe differently, so messages get lost: %s (%s and %s); all members of a group "
                "must subscribe alike",
                self._group,
                "; ".join(found),
                self._session.client_id,
                other,
            )

    async def _ask(self, other: str) -> list[SubscriptionData] | None:
        """What another member subscribes; None when nobody can say."""
        ask = ConsumerRunningInfoOf(consumer_group=self._group, client_id=other)
        for topic in self._subscriptions:
            route = self._session.directory.routes.get(topic)
            for broker in route.brokers if route is not None else ():
                try:
                    address = await self._session.directory.reader(broker)
                    answer = await self._session.call(address, api.GET_CONSUMER_RUNNING_INFO, ask, timeout=TIMEOUT)
                    theirs = ConsumerRunningInfo.decode(answer.body).subscription_set
                    known = self._session.names
                    return [msgspec.structs.replace(each, topic=known.from_broker(each.topic)) for each in theirs]
                except (ClientError, ProtocolError) as error:
                    log.debug("%s of %s does not say what it subscribes: %s", other, self._group, error)
        return None
