"""Consumer groups for operators and slaves: create, change, delete, list (SubscriptionGroupManager in 4.9.7).

Requests 200, 201, 207 and 352. A change is on disk before the answer.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import all_confirmed, changeable, legal_group, persisting, within_bounds
from eruca.protocol import api
from eruca.protocol.bodies import DIALECT_AT_ONCE, SubscriptionGroupConfig
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.topics import DeleteSubscriptionGroup, OfGroup
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.audit import NOTHING
from eruca.remoting.slices import encoded

routes: Routes[Broker] = Routes()


@routes.on(api.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, changes="a group")
async def update(broker: Broker, call: Call[Empty]) -> Reply:
    """Create a group or replace its settings."""
    epoch = changeable(broker)
    try:
        config = SubscriptionGroupConfig.decode_request(call.body, DIALECT_AT_ONCE)
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is no SubscriptionGroupConfig: {error}") from None
    call.note(target=f"group {config.group_name}")
    legal_group(config.group_name)
    within_bounds(config)
    broker.groups.need_room(config.group_name)
    call.note(before=broker.groups.get(config.group_name) or NOTHING, after=config)
    broker.groups.put(config)
    with persisting(f"the group {config.group_name}"):
        await broker.groups.saved()
    await all_confirmed(broker, epoch)
    return Reply()


@routes.on(api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, reads=True, costly=True)
async def all_groups(broker: Broker, call: Call[Empty]) -> Reply:
    """All groups with their version."""
    return Reply(body=await encoded(broker.groups.wrapper()))


@routes.on(api.GET_SUBSCRIPTIONGROUP_CONFIG, reads=True)
def one_group(broker: Broker, call: Call[OfGroup]) -> Reply:
    """The settings of one group, for mqadmin of 5.x."""
    config = broker.groups.get(call.header.group)
    if config is None:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
    return Reply(body=config.encode())


@routes.on(api.DELETE_SUBSCRIPTIONGROUP, costly=True, changes=lambda ask: f"group {ask.group_name}")
async def delete(broker: Broker, call: Call[DeleteSubscriptionGroup]) -> Reply:
    """Delete a group, and its offsets on request; an unknown group is no error."""
    epoch = changeable(broker)
    group = call.header.group_name
    offsets = "nothing, its offsets neither" if call.header.remove_offset else "nothing but its offsets"
    call.note(before=broker.groups.get(group) or NOTHING, after=offsets)
    broker.groups.remove(group)
    broker.statistics.forget_group(group)
    if call.header.remove_offset:
        broker.offsets.remove_group(group)
    with persisting(f"the deletion of the group {group}"):
        await broker.groups.saved()
        if call.header.remove_offset:
            await broker.offsets.saved()
    await all_confirmed(broker, epoch, on_disk=call.header.remove_offset)
    return Reply()
