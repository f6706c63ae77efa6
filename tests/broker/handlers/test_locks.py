"""Queue locks on the wire: 41 and 42."""

import pytest

from eruca.protocol.bodies import LockBatchAnswer, LockBatchRequest
from eruca.protocol.queues import MessageQueue
from tests.support.desk import Desk

LOCK, UNLOCK = 41, 42
QUEUES = [MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)]


def request(client_id: str, *queues: MessageQueue, group: str = "g") -> bytes:
    return LockBatchRequest(client_id=client_id, consumer_group=group, mq_set=list(queues)).encode()


async def held(desk: Desk, client_id: str, *queues: MessageQueue) -> list[MessageQueue]:
    answer = await desk.ask(LOCK, body=request(client_id, *queues))
    assert answer.code == 0
    return LockBatchAnswer.decode(answer.body).locked


async def test_a_queue_is_one_clients_until_it_lets_go(desk: Desk) -> None:
    assert await held(desk, "one", *QUEUES) == QUEUES
    assert await held(desk, "two", *QUEUES) == []
    assert (await desk.ask(UNLOCK, body=request("one", QUEUES[1]))).code == 0
    assert await held(desk, "two", *QUEUES) == [QUEUES[1]]


async def test_a_one_way_unlock_works_too(desk: Desk) -> None:
    await held(desk, "one", *QUEUES)
    desk.operator.tell(UNLOCK, body=request("one", *QUEUES))
    assert await held(desk, "two", *QUEUES) == QUEUES


async def test_locks_end_after_a_minute_of_silence(desk: Desk) -> None:
    await held(desk, "one", QUEUES[0])
    desk.now += 60_000
    assert await held(desk, "two", QUEUES[0]) == []
    desk.now += 1
    assert await held(desk, "two", QUEUES[0]) == [QUEUES[0]]


@pytest.mark.parametrize("code", [LOCK, UNLOCK])
@pytest.mark.parametrize("body", [b"", b"{", b'{"consumerGroup":"a b"}'])
async def test_what_is_no_lock_request(desk: Desk, code: int, body: bytes) -> None:
    assert (await desk.ask(code, body=body)).code == 1
