"""The keys of a group in etcd, and their values in JSON.

Owns names and forms: ``group``, permanent (``failover.group``); ``master``, on the hold of the master;
``members/<id>``, on the hold of each broker. Must not know when they are written. Invariant: a value that cannot be
read counts as absent, except that of the group: nobody acts without knowing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from eruca.broker.coordination.port import ABSENT, Entry
from eruca.broker.failover import group as groups
from eruca.broker.failover.member import Known

ROOT = "/eruca/1/"
"""The beginning of all keys, with the number of their layout."""
V = TypeVar("V")


class Mastery(msgspec.Struct, rename="camel", frozen=True):
    """Who holds the key ``master``: as long as it is there, nobody stands for election."""

    broker_id: int
    store: str
    epoch: int
    address: str
    ha_address: str


class Standing(msgspec.Struct, rename="camel", frozen=True):
    """A broker that would stand for election; ``revision`` is that of the group's key which it saw."""

    revision: int
    epoch: int
    end: int
    priority: int
    has_tables: bool = True


class Present(msgspec.Struct, rename="camel", frozen=True):
    """A broker of the group that is up."""

    store: str
    address: str
    ha_address: str
    standing: Standing | None = None


class View(NamedTuple):
    """All keys of a group, as they were at one moment."""

    known: Known | None
    master: Mastery | None
    master_revision: int
    """``ABSENT`` without the key."""
    present: Mapping[int, Present]

    def master_of(self, group: groups.Group) -> Mastery | Present | None:
        """Where the master of a group is, by its key, or as it is up; None when it is neither."""
        if self.master is not None and self.master.epoch == group.master_epoch:
            return self.master
        return self.present.get(group.master_broker_id)


class Keys:
    """The names of a group's keys. No cluster and no broker has a slash in its name."""

    def __init__(self, cluster: str, broker_name: str) -> None:
        self.prefix = f"{ROOT}{cluster}/{broker_name}/"
        self.group = f"{self.prefix}group"
        self.master = f"{self.prefix}master"
        self._members = f"{self.prefix}members/"

    def member(self, broker_id: int) -> str:
        """The key of a broker."""
        return f"{self._members}{broker_id}"

    def view(self, entries: Mapping[str, Entry]) -> View:
        """What the entries below the prefix say. Raises GroupUnreadable."""
        group, master = entries.get(self.group), entries.get(self.master)
        present = {}
        for key, entry in entries.items():
            number = key.removeprefix(self._members)
            if number != key and number.isdecimal() and (found := _decoded(entry.value, Present)) is not None:
                present[int(number)] = found
        return View(
            Known(groups.decode(group.value), group.revision) if group is not None else None,
            _decoded(master.value, Mastery) if master is not None else None,
            master.revision if master is not None else ABSENT,
            present,
        )


def encode(value: Mastery | Present) -> bytes:
    """The value of a key."""
    return msgspec.json.encode(value)


def _decoded(value: bytes, form: type[V]) -> V | None:
    try:
        return msgspec.json.decode(value, type=form)
    except msgspec.MsgspecError:
        return None
