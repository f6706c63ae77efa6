"""The group: what etcd keeps of one broker name, and how it is written there.

Owns the key's fields and their JSON. RocketMQ's words (SyncStateInfo and BrokerReplicaInfo of its controller):
``masterBrokerId``, ``masterEpoch``, ``syncStateSet``, ``syncStateSetEpoch``. Invariants of every group that can be made
here: the master is in the set, the set is not empty, each member of the set has a store id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from eruca.broker.failover.epochs import FOUNDED

FORMAT = 1
UNSEEN = 1000
"""Epochs that may have passed at brokers of which an operator hears nothing."""


_MEND = "delete the key in etcd, then run mqadmin recreateGroup"


class GroupUnreadable(Exception):
    """The key holds no group of a format that this version knows; the text says what to do."""


class Group(NamedTuple):
    """A group as etcd has it. ``stores`` is sorted by broker id."""

    master_broker_id: int
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int
    stores: tuple[tuple[int, str], ...]
    """The id of the store with which each broker was taken into the set."""
    lineage: str = ""
    """The id of the store of its founder: epochs of groups with different ones say nothing of each other."""

    @property
    def age(self) -> tuple[int, int]:
        """Rises with each change: of two states of a group, the higher one is the later one."""
        return self.master_epoch, self.sync_state_set_epoch

    def has(self, broker_id: int, store: str) -> bool:
        """Whether a broker is in the set, with this store: then it has all that was acknowledged."""
        return broker_id in self.sync_state_set and (broker_id, store) in self.stores

    def elect(self, broker_id: int, store: str) -> Group:
        """This group with another master in the next epoch, alone in its set until others have joined it."""
        return self._replace(
            master_broker_id=broker_id,
            master_epoch=self.master_epoch + 1,
            sync_state_set=frozenset((broker_id,)),
            sync_state_set_epoch=self.sync_state_set_epoch + 1,
            stores=_with(self.stores, {broker_id: store}),
        )

    def hand_over(self, broker_id: int) -> Group:
        """This group with a master that is named, and not elected yet; whoever is in the set may still stand."""
        return self._replace(
            master_broker_id=broker_id,
            master_epoch=self.master_epoch + 1,
            sync_state_set_epoch=self.sync_state_set_epoch + 1,
        )

    def recreate(self, broker_id: int, store: str) -> Group:
        """This group once more, after etcd has lost it, by an operator: with another master, alone in its set.

        Its epoch is one that no log has, not even that of a broker whose log nobody could see: so no part of a log of
        another broker counts as one of this epoch.
        """
        return self._replace(master_epoch=self.master_epoch + UNSEEN).elect(broker_id, store)

    def change(self, members: frozenset[int], stores: Mapping[int, str]) -> Group:
        """This group with another set, in the same epoch; ``stores`` are those of members that come."""
        return self._replace(
            sync_state_set=members,
            sync_state_set_epoch=self.sync_state_set_epoch + 1,
            stores=_with(self.stores, stores),
        )


def found(broker_id: int, store: str) -> Group:
    """The first group of a broker name: of the broker that was configured as its master, alone."""
    return Group(broker_id, FOUNDED, frozenset((broker_id,)), 1, ((broker_id, store),), store)


def _with(stores: tuple[tuple[int, str], ...], more: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted({**dict(stores), **more}.items()))


class _Key(msgspec.Struct, rename="camel", forbid_unknown_fields=False):
    format: int
    master_broker_id: int
    master_epoch: int
    sync_state_set: list[int]
    sync_state_set_epoch: int
    stores: dict[int, str]
    lineage: str = ""


def encode(group: Group) -> bytes:
    """The value of the key, JSON."""
    return msgspec.json.encode(
        _Key(
            FORMAT,
            group.master_broker_id,
            group.master_epoch,
            sorted(group.sync_state_set),
            group.sync_state_set_epoch,
            dict(group.stores),
            group.lineage,
        )
    )


def decode(value: bytes) -> Group:
    """The group in the value of the key.

    Raises:
        GroupUnreadable: it is none, or of a newer format.
    """
    try:
        key = msgspec.json.decode(value, type=_Key)
    except msgspec.MsgspecError as fault:
        raise GroupUnreadable(f"the key of the group holds no group ({fault}): {_MEND}") from None
    if key.format > FORMAT:
        raise GroupUnreadable(
            f"the key of the group has format {key.format}, and this version knows formats up to {FORMAT}: "
            "start a newer version of Eruca"
        )
    members = frozenset(key.sync_state_set)
    if key.master_broker_id not in members or not members <= key.stores.keys() or key.master_epoch < 1:
        raise GroupUnreadable(
            "the key of the group contradicts itself (the master must be in syncStateSet, and each member of it must "
            f"have a store): {_MEND}"
        )
    return Group(
        key.master_broker_id,
        key.master_epoch,
        members,
        key.sync_state_set_epoch,
        tuple(sorted(key.stores.items())),
        key.lineage,
    )
