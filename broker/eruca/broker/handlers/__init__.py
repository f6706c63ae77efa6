"""Handlers: from a request to a service or the store, and back to a reply.

RocketMQ's processors are AdminBrokerProcessor (access, clients, groups, offsets, progress, relays, resets, runtime,
topics), ClientManageProcessor and ConsumerManageProcessor (clients, offsets), EndTransactionProcessor (transactions),
PullMessageProcessor (pull), QueryMessageProcessor (queries), ReplyMessageProcessor (replies) and SendMessageProcessor
(send, send_back). ``TABLES`` lists the routes of every module here.
"""

from eruca.broker.handlers import (
    access,
    clients,
    failover,
    groups,
    offsets,
    progress,
    pull,
    queries,
    relays,
    replies,
    resets,
    runtime,
    send,
    send_back,
    topics,
    transactions,
)

TABLES = [
    module.routes
    for module in (
        send,
        transactions,
        send_back,
        replies,
        pull,
        clients,
        offsets,
        topics,
        groups,
        progress,
        queries,
        relays,
        resets,
        runtime,
        failover,
        access,
    )
]
