"""From a request's header to a service or the store, and back to a reply.

``TABLES`` lists the routes of every module here.
"""

from eruca.broker.handlers import (
    clients,
    configuration,
    connections,
    groups,
    locks,
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
        connections,
        locks,
        progress,
        queries,
        relays,
        resets,
        runtime,
        configuration,
    )
]
