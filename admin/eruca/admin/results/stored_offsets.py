"""The stored offsets of a consumer group, in the form that ``resetOffset --from-file`` reads."""

from __future__ import annotations

from collections.abc import Mapping

from eruca.admin.client import Admin
from eruca.admin.errors import NotFound
from eruca.admin.lookups import ask_each
from eruca.admin.results.answer import Answer, Result
from eruca.protocol import api
from eruca.protocol.bodies import ConsumerOffsets
from eruca.protocol.names import retry_topic


class StoredOffset(Result, frozen=True, kw_only=True, rename="camel"):
    """Where a group goes on in a queue."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class OffsetsOfGroup(Answer, frozen=True, kw_only=True, rename="camel"):
    """The stored offsets of a group, but for its retry topic, whose messages no other cluster has."""

    group: str
    queues: list[StoredOffset]


async def stored_offsets(admin: Admin, masters: Mapping[str, str], group: str) -> OffsetsOfGroup:
    """The offsets that these masters, by their names and addresses, have of a group (43).

    Raises NotFound if there is none, and AdminError if a master does not answer: with a part of the offsets a group
    would go on at another place in the rest.
    """
    tables = (await ask_each({name: _offsets_at(admin, address) for name, address in masters.items()})).strict()
    queues = [
        StoredOffset(topic=topic, broker_name=broker, queue_id=queue_id, offset=offset)
        for broker, table in sorted(tables.items())
        for key, offsets in sorted(table.items())
        for topic, _, name in [key.rpartition("@")]
        if name == group and topic != retry_topic(group)
        for queue_id, offset in sorted(offsets.items())
        if offset >= 0
    ]
    if not queues:
        raise NotFound(f"no master has offsets of a consumer group {group}")
    return OffsetsOfGroup(group=group, queues=queues)


async def topics_with_offsets(admin: Admin, group: str) -> list[str]:
    """The topics in which a group has an offset at any master. Raises as ``stored_offsets``."""
    brokers = (await admin.clusters()).broker_addr_table
    masters = {name: address for name, broker in brokers.items() if (address := broker.master()) is not None}
    return sorted({each.topic for each in (await stored_offsets(admin, masters, group)).queues})


async def _offsets_at(admin: Admin, address: str) -> dict[str, dict[int, int]]:
    return ConsumerOffsets.decode((await admin.call(address, api.GET_ALL_CONSUMER_OFFSET)).body).offset_table
