"""The settings of consumer groups, and ``subscriptionGroup.json`` (SubscriptionGroupManager in 4.9.7).

Owns the table and its DataVersion; groups are created by operators or automatically. Must not know who is online or
what is committed. Invariant: every change increments the version and is on disk once ``saved`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog

from eruca.broker.state.parts import Part, chosen, gone, unheard
from eruca.broker.state.state_file import SavedState, Saver
from eruca.protocol import names
from eruca.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.fastjson import Style
from eruca.protocol.queues import faults_of_queues

log = structlog.get_logger("eruca.broker")


class Groups(SavedState):
    """Group settings by name.

    ``path`` is ``…/config/subscriptionGroup.json``; ``clock`` returns ms; ``auto_create`` returns whether an unknown
    group is created when it is looked up (autoCreateSubscriptionGroup); ``most`` returns how many groups there may be
    (maxSubscriptionGroupNum, 0 for any number), ``decides`` whether this broker makes groups: one that copies another's
    table makes none.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], int],
        auto_create: Callable[[], bool],
        most: Callable[[], int] = lambda: 0,
        decides: Callable[[], bool] = lambda: True,
    ) -> None:
        self.version = DataVersion(timestamp=clock())
        self.on_change: Callable[[str], object] = unheard
        self._clock = clock
        self._auto_create = auto_create
        self._most = most
        self._decides = decides
        self._table = {
            name: SubscriptionGroupConfig(group_name=name, consume_broadcast_enable=True)
            for name in names.SYSTEM_GROUPS
        }
        self._saver = Saver(path, self._encode)

    @property
    def table(self) -> Mapping[str, SubscriptionGroupConfig]:
        """All groups by name. Change it only through the methods here."""
        return self._table

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The settings of a group, None if it does not exist."""
        return self._table.get(name)

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """The settings of a group, which is created if that is allowed; else None if it does not exist.

        Where another broker decides, one that would be created has the settings of a new group, and is not made here.
        Raises Refused as ``need_room``.
        """
        config = self._table.get(name)
        if config is None and self.comes_by_itself(name):
            self.need_room(name)
            config = SubscriptionGroupConfig(group_name=name)
            if self._decides():
                self.put(config)
                log.info("group_created", group=name)
        return config

    def comes_by_itself(self, name: str) -> bool:
        """Whether a group does not exist, and is to be created when it is looked up."""
        if name in self._table or not (self._auto_create() or names.is_system_group(name)):
            return False
        return names.group_fault(name) is None

    def need_room(self, name: str) -> None:
        """Raise Refused if the group does not exist, and there are as many as may be."""
        count, most = len(self._table), self._most()
        if most and count >= most and name not in self._table:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the group {name} is not made: this broker has {count} groups, and maxSubscriptionGroupNum allows "
                f"{most}; delete unused groups, or raise maxSubscriptionGroupNum",
            )

    def wrapper(self) -> SubscriptionGroupWrapper:
        """All groups with their version: the answer to 201."""
        return SubscriptionGroupWrapper(data_version=self.version, subscription_group_table=dict(self._table))

    def load(self) -> None:
        """Read ``subscriptionGroup.json`` over the built-in groups. Raises StateUnreadable."""
        stored = self._stored(SubscriptionGroupWrapper.decode, "subscriptionGroupTable", _check)
        if stored is not None:
            self._take(stored)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create a group or replace its settings."""
        self._table[config.group_name] = config
        self._change(config.group_name)

    def remove(self, name: str) -> SubscriptionGroupConfig | None:
        """Delete a group; its offsets stay. Returns None if it did not exist."""
        config = self._table.pop(name, None)
        if config is not None:
            self._change(name)
        return config

    def take_over(self, other: SubscriptionGroupWrapper) -> None:
        """Replace table and version by a master's, unless the versions are equal.

        A group with more retry queues than a topic may have stays as it was here.
        """
        if other.data_version != self.version:
            self._replace(other)

    def part(self, keys: Iterable[str] | None) -> Part:
        """As in ``parts.Table``; the keys are names."""
        table = chosen(keys, self._table)
        entries = SubscriptionGroupWrapper(data_version=self.version, subscription_group_table=table).encode()
        return Part(keys is None, entries, gone(keys, self._table))

    def take_part(self, part: Part) -> None:
        """As in ``parts.Table``."""
        other = SubscriptionGroupWrapper.decode(part.entries)
        if part.whole:
            self._replace(other)
            return
        self._take(other)
        for name in part.gone:
            self._table.pop(name, None)
        self._saver.changed()

    def _replace(self, other: SubscriptionGroupWrapper) -> None:
        former = self._table
        self._table = {}
        self._take(other)
        for name, fault in faults_of_queues(other.subscription_group_table).items():
            log.warning("group_not_taken_over", group=name, reason=fault)
            self._table.pop(name, None)
            if name in former:
                self._table[name] = former[name]
        self._saver.changed()

    def _take(self, other: SubscriptionGroupWrapper) -> None:
        """Take the version and the groups with legal names."""
        for name, config in other.subscription_group_table.items():
            if names.group_fault(name) is None:
                config.group_name = name
                self._table[name] = config
        self.version = other.data_version

    def _change(self, name: str) -> None:
        self.version = self.version.following(self._clock())
        self._saver.changed()
        self.on_change(name)

    def _encode(self) -> bytes:
        return self.wrapper().encode(Style.PRETTY)


def _check(stored: SubscriptionGroupWrapper) -> None:
    for name, fault in faults_of_queues(stored.subscription_group_table).items():
        raise ProtocolError(f"the group {name}: {fault}")
