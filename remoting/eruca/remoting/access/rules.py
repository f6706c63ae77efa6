"""What a request needs of the account that signed it: a rule for each request code of a daemon.

Owns the kinds of needs, where a request names its topics and groups, and which account meets a need. The tables of
rules are the daemons' own. Pure: must not know files of accounts, addresses or the log. Facts: PlainAccessValidator and
PlainPermissionManager in 4.9.7, which check what is marked ``always``, but for the changes of accounts.

The name of a retry topic stands for its group, to which it belongs: whoever may read as the group may send to it and
read it. The topic of a group's dead letters is a topic like any other, as in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from eruca.protocol import names
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import LongDialect, ProtocolError, Refused
from eruca.remoting.access.account import Account
from eruca.remoting.access.permissions import ANY, PUB, SUB, allows
from eruca.remoting.access.refusals import shown
from eruca.remoting.request import Call

S = TypeVar("S")
B = TypeVar("B")


class Need(Enum):
    """What is needed, in the words of the documentation."""

    PUB = "topic PUB"
    BOTH = "topic SUB and group SUB"
    GROUP = "group SUB"
    SUB = "topic SUB"
    EITHER = "topic PUB or SUB"
    MONITOR = "monitor"
    ADMIN = "admin"
    BROKER = "broker"


ROLES: Final = frozenset({Need.MONITOR, Need.ADMIN, Need.BROKER})
_OF_TOPICS: Final = {Need.PUB: PUB, Need.BOTH: SUB, Need.SUB: SUB, Need.EITHER: ANY, Need.GROUP: SUB}
FREE: Final = {
    Need.PUB: frozenset({names.TRACE_TOPIC}),
    Need.EITHER: frozenset({names.TRACE_TOPIC, names.DEFAULT_TOPIC}),
}
"""Topics for which everybody with an account may do this: traces, as in 4.9.7, and the template of new topics."""


class Named(NamedTuple):
    """The topics and groups that a request names."""

    topics: Iterable[str] = ()
    groups: Iterable[str] = ()


class Lack(NamedTuple):
    """What an account lacks for a request: the kind of it, the resource, and 4.9.7's sentence."""

    reason: str
    resource: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[S]):
    """What one kind of request needs.

    ``topic`` and ``group`` are fields of its header, empty for none; ``named`` finds names that are elsewhere: in the
    body, or in a message that the request is about. ``also`` are roles that suffice instead. ``always`` is whether the
    rule holds with aclCompat=4.9 as well.
    """

    need: Need
    topic: str = ""
    group: str = ""
    named: Callable[[S, Call[Any]], Named] | None = None
    also: frozenset[Need] = frozenset()
    always: bool = False
    of_brokers: bool = field(init=False)
    """Whether brokers may send the request."""
    _roles: frozenset[Need] = field(init=False)

    def __post_init__(self) -> None:
        roles = frozenset({self.need, *self.also}) & ROLES
        object.__setattr__(self, "_roles", roles)
        object.__setattr__(self, "of_brokers", Need.BROKER in roles)

    def lack(self, service: S, call: Call[Any], account: Account) -> Lack | None:
        """What the account lacks for a request; None for nothing."""
        roles = self._roles
        if roles and any(_has_role(account, role) for role in roles):
            return None
        if self.need in roles:
            role = self.need.value
            text = f"Need {role} permission for request code={call.code}, but accessKey={account.access_key} is not"
            return Lack(role, "", text)
        for resource, allowed in self._resources(service, call, account):
            if not allowed:
                return Lack("permission", resource, f"No default permission for {resource}")
        return None

    def _resources(self, service: S, call: Call[Any], account: Account) -> Iterator[tuple[str, bool]]:
        """The resources of a request, and whether the account may use each as it must."""
        topics, groups = self._names(service, call)
        for topic in topics:
            if names.is_retry_topic(topic):
                yield _group(account, topic[len(names.RETRY_PREFIX) :])
            else:
                allowed = topic in FREE.get(self.need, ()) or allows(account.topic(topic), _OF_TOPICS[self.need])
                yield f"topic:{shown(topic)}", allowed
        for group in groups:
            yield _group(account, group)

    def _names(self, service: S, call: Call[Any]) -> Named:
        if self.named is not None:
            return self.named(service, call)
        topic = getattr(call.header, self.topic) if self.topic else None
        group = getattr(call.header, self.group) if self.group else None
        return Named((topic,) if topic is not None else (), (group,) if group else ())


def table(*rules: tuple[Rule[S], Iterable[int]]) -> Mapping[int, Rule[S]]:
    """The rules of a daemon by request code. Raises ValueError for a code with two rules."""
    found: dict[int, Rule[S]] = {}
    for rule, codes in rules:
        for code in codes:
            if code in found:
                raise ValueError(f"the request {code} has a rule already")
            found[code] = rule
    return found


def _has_role(account: Account, role: Need) -> bool:
    if account.admin or role is Need.ADMIN:
        return account.admin
    return account.monitor if role is Need.MONITOR else account.broker


def _group(account: Account, group: str) -> tuple[str, bool]:
    return f"group:{shown(group)}", allows(account.group(group), SUB)


def may_read(account: Account, topic: str) -> bool:
    """Whether an account may read the messages of a topic."""
    if names.is_retry_topic(topic):
        return _group(account, topic[len(names.RETRY_PREFIX) :])[1]
    return allows(account.topic(topic), SUB)


def may_send(account: Account, topic: str) -> bool:
    """Whether an account may send to a topic."""
    if names.is_retry_topic(topic):
        return may_read(account, topic)
    return topic in FREE[Need.PUB] or allows(account.topic(topic), PUB)


def body_of(decode: Callable[[bytes], B], call: Call[Any]) -> B:
    """The body of a request that names its resources there. Raises Refused."""
    try:
        return decode(call.body)
    except LongDialect:
        raise Refused(ResponseCode.SYSTEM_ERROR, "with access control on, so long a body must be plain JSON") from None
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body cannot be read: {error}") from None
