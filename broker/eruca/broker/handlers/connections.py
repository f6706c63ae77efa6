"""Connected clients: requests 203, 204 and 328 (ConsumerManager and ProducerManager in 4.9.7)."""

from __future__ import annotations

from collections.abc import Iterable

from eruca.broker.broker import Broker
from eruca.broker.state.clients import Member
from eruca.protocol import api
from eruca.protocol.bodies import Connection, ConsumerConnection, ProducerConnection, ProducerInfo, ProducerTableInfo
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.clients import OfConsumerGroup, OfProducerGroup
from eruca.remoting import Call, Reply, Routes

routes: Routes[Broker] = Routes()


@routes.on(api.GET_CONSUMER_CONNECTION_LIST)
def consumers(broker: Broker, call: Call[OfConsumerGroup]) -> Reply:
    """The online members of a consumer group, and its subscriptions."""
    group = broker.clients.consumer(call.header.consumer_group)
    if group is None:
        raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{call.header.consumer_group}] not online")
    body = ConsumerConnection(
        connection_set=_connections(group.members.values()),
        consume_from_where=group.consume_from_where,
        consume_type=group.consume_type,
        message_model=group.message_model,
        subscription_table=group.subscriptions,
    )
    return Reply(body=body.encode())


@routes.on(api.GET_PRODUCER_CONNECTION_LIST)
def producers(broker: Broker, call: Call[OfProducerGroup]) -> Reply:
    """The online members of a producer group."""
    members = broker.clients.producers.get(call.header.producer_group)
    if members is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{call.header.producer_group}] not exist")
    return Reply(body=ProducerConnection(connection_set=_connections(members.values())).encode())


@routes.on(api.GET_ALL_PRODUCER_INFO)
def all_producers(broker: Broker, call: Call[Empty]) -> Reply:
    """All online producers by group."""
    table = {
        group: [
            ProducerInfo(
                client_id=member.client_id,
                language=member.language,
                last_update_timestamp=member.last_seen,
                remote_ip=f"/{member.connection.remote}",
                version=member.version,
            )
            for member in members.values()
        ]
        for group, members in broker.clients.producers.items()
    }
    return Reply(body=ProducerTableInfo(data=table).encode())


def _connections(members: Iterable[Member]) -> list[Connection]:
    return [
        Connection(
            client_addr=member.connection.remote,
            client_id=member.client_id,
            language=member.language,
            version=member.version,
        )
        for member in members
    ]
