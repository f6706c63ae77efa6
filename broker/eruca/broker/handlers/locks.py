"""Queue locks of orderly consumers: requests 41 and 42 (RebalanceLockManager in 4.9.7)."""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.handlers.checks import legal_group
from eruca.protocol import api
from eruca.protocol.bodies import LockBatchAnswer, LockBatchRequest
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError, Refused
from eruca.protocol.header import Empty
from eruca.remoting import Call, Reply, Routes

routes: Routes[Broker] = Routes()


@routes.on(api.LOCK_BATCH_MQ)
def lock(broker: Broker, call: Call[Empty]) -> Reply:
    """Lock queues for a client; the answer names those that it now holds."""
    ask = _asked(call)
    held = broker.locks.lock(ask.consumer_group, ask.mq_set, ask.client_id, broker.clock())
    return Reply(body=LockBatchAnswer(locked=held).encode())


@routes.on(api.UNLOCK_BATCH_MQ)
def unlock(broker: Broker, call: Call[Empty]) -> Reply:
    """Release the queues that the client holds."""
    ask = _asked(call)
    broker.locks.unlock(ask.consumer_group, ask.mq_set, ask.client_id)
    return Reply()


def _asked(call: Call[Empty]) -> LockBatchRequest:
    try:
        ask = LockBatchRequest.decode(call.body)
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is no LockBatchRequestBody: {error}") from None
    legal_group(ask.consumer_group)
    return ask
