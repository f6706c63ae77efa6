"""Requests of clients that a former master passes on to the present one (``services.failover.relay``).

Owns which requests these are: those of clients that only a master answers, and that clients send to the master of the
route which they have. What operators change is not among them: their tools ask for the route first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from eruca.broker.broker import Broker
from eruca.protocol.codes import RequestCode
from eruca.remoting import Call, Routes
from eruca.remoting.router import Handler, Result, Route

PASSED_ON = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
    }
)


def passing_on(tables: Iterable[Routes[Broker]]) -> list[Routes[Broker]]:
    """The same routes for a broker whose group elects its master."""
    return [_passing_on(table) for table in tables]


def _passing_on(table: Routes[Broker]) -> Routes[Broker]:
    routes: Routes[Broker] = Routes()
    for code, route in table.handlers.items():
        routes.handlers[code] = route._replace(handler=_relayed(route)) if code in PASSED_ON else route
    return routes


def _relayed(route: Route) -> Handler[Broker, Any]:
    endpoint, handler = route.endpoint, route.handler

    def relayed(broker: Broker, call: Call[Any]) -> Result:
        if broker.accepting or broker.relay is None or not broker.relay.takes(call):
            return handler(broker, call)
        return broker.relay.pass_on(call, endpoint, partial(handler, broker, call))

    return relayed
