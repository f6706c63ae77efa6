"""Callbacks on schedule: for the queues that a member has, one at a time for each, with their own offsets."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest

from eruca.client import (
    ClientSettings,
    Hook,
    Message,
    MessageQueue,
    PullConsumer,
    PullScheduleService,
    PullStatus,
    PullTaskContext,
)
from eruca.client.errors import BadConfig, BrokerRefused, CallTimeout, StateError, UsageError
from eruca.client.hooks import ConsumeContext
from eruca.protocol import api
from eruca.protocol.bodies import ConsumerRunningInfo
from eruca.protocol.headers.offsets import ResetOffset
from tests.client.conftest import Lab, eventually

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


class Pulled:
    """A callback that pulls on from the stored offset, as users write it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.calls: Counter[MessageQueue] = Counter()
        self.running = 0
        self.most_at_work = 0

    async def __call__(self, queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        self.calls[queue] += 1
        self.running += 1
        self.most_at_work = max(self.most_at_work, self.running)
        consumer = context.pull_consumer
        offset = await consumer.query_offset(queue) or 0
        result = await consumer.pull(queue, offset)
        if result.status is PullStatus.FOUND:
            self.bodies += [record.body for record in result.records]
        await consumer.update_offset(queue, result.next_offset)
        context.pull_next_delay_time = 0.01
        self.running -= 1


async def fill(lab: Lab, count: int) -> None:
    for number in range(count):
        await lab.producer.send(Message("T", b"%d" % number), queue=QUEUES[number % 4])


async def test_every_queue_is_pulled_again_and_again(lab: Lab) -> None:
    await fill(lab, 20)
    pulled, hooked = Pulled(), list[bytes]()

    class Watch(Hook):
        def after_consume(self, context: ConsumeContext) -> None:
            hooked.extend(each.body for each in context.messages)

    service = PullScheduleService("g", nameserver=lab.address).register_pull_task_callback("T", pulled)
    service.add_hook(Watch())
    async with service:
        await eventually(lambda: len(pulled.bodies) == 20)
        assert sorted(hooked) == sorted(pulled.bodies)
        assert service.queues == QUEUES
        await fill(lab, 4)
        await eventually(lambda: len(pulled.bodies) == 24)
        await eventually(lambda: all(pulled.calls[queue] > 3 for queue in QUEUES))
    assert pulled.running == 0
    assert await lab.offsets("g", "T") == [6, 6, 6, 6]


async def test_a_callback_may_ask_for_the_share(lab: Lab) -> None:
    await fill(lab, 1)
    heard: list[object] = []

    async def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        heard.append(context.pull_consumer.queues)
        with pytest.raises(UsageError, match="call its register_pull_task_callback instead"):
            await context.pull_consumer.register_message_queue_listener("T", lambda *_: None)
        heard.append("refused")

    async with PullScheduleService("g", nameserver=lab.address).register_pull_task_callback("T", callback):
        await eventually(lambda: heard[:2] == [QUEUES, "refused"])


async def test_members_share_the_queues(lab: Lab) -> None:
    await fill(lab, 4)
    first, second = Pulled(), Pulled()
    one = PullScheduleService("g", nameserver=lab.address).register_pull_task_callback("T", first)
    two = PullScheduleService("g", nameserver=lab.address).register_pull_task_callback("T", second)
    async with one:
        async with two:
            await eventually(lambda: len(one.queues) == len(two.queues) == 2)
            assert one.membership.describe().consume_type == "CONSUME_ACTIVELY"
            info = ConsumerRunningInfo.decode((await one.membership.running_info(False)).encode())
            assert [each.topic for each in info.subscription_set] == ["T"]
            assert not info.mq_table, "how far its queues are only the callbacks know"
        await eventually(lambda: len(one.queues) == 4)
    assert sorted([*first.bodies, *second.bodies]) == [b"0", b"1", b"2", b"3"]


async def test_functions_run_in_threads_so_many_at_once(lab: Lab) -> None:
    await fill(lab, 4)
    lock, at_work, most, threads, calls = threading.Lock(), 0, 0, set(), 0
    gate = threading.Event()

    def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        nonlocal at_work, most, calls
        with lock:
            at_work, calls = at_work + 1, calls + 1
            most = max(most, at_work)
        threads.add(threading.current_thread())
        if at_work == 2:
            gate.set()
        gate.wait(5)
        with lock:
            at_work -= 1

    service = PullScheduleService("g", nameserver=lab.address, pull_thread_nums=2)
    async with service.register_pull_task_callback("T", callback):
        await eventually(lambda: calls >= 8)
    assert most == 2 and threading.main_thread() not in threads


def hasty(lab: Lab) -> PullScheduleService:
    return PullScheduleService("g", nameserver=lab.address, pull_time_delay_when_exception=0.01)


async def test_a_callback_that_fails_is_called_again(lab: Lab) -> None:
    await fill(lab, 1)
    calls = 0

    async def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        nonlocal calls
        calls += 1
        raise ValueError(queue)

    async with hasty(lab).register_pull_task_callback("T", callback):
        await eventually(lambda: calls > 8)


@pytest.mark.parametrize(("delay", "named"), [("soon", " is of type str"), (float("nan"), "=nan")])
async def test_a_callback_that_names_no_time_is_told_and_called_again(
    lab: Lab, caplog: pytest.LogCaptureFixture, delay: float, named: str
) -> None:
    await fill(lab, 1)
    calls: Counter[MessageQueue] = Counter()

    async def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        calls[queue] += 1
        context.pull_next_delay_time = delay

    async with hasty(lab).register_pull_task_callback("T", callback):
        await eventually(lambda: calls[QUEUES[0]] > 3)
    (told,) = (each for each in caplog.messages if "queueId=0" in each)
    assert told.endswith(f"every 0.01 s: pull_next_delay_time{named}: a number of seconds is expected.")


async def test_a_broker_that_does_not_answer_is_told_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    await fill(lab, 1)
    calls: Counter[MessageQueue] = Counter()
    well = asyncio.Event()

    async def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        calls[queue] += 1
        if calls[queue] != 3:
            raise CallTimeout("no answer in time")
        await well.wait()

    async with hasty(lab).register_pull_task_callback("T", callback):
        await eventually(lambda: calls[QUEUES[0]] == 3)
        assert len(told := [each for each in caplog.messages if "queueId=0" in each]) == 1
        assert told[0].endswith("failed, retrying every 0.01 s: no answer in time")
        well.set()
        await eventually(lambda: calls[QUEUES[0]] > 5)
        assert len([each for each in caplog.messages if "queueId=0" in each]) == 2, "it had been well in between"
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_reset_outlives_the_callback_at_work(lab: Lab) -> None:
    await fill(lab, 8)
    pulled = Pulled()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        await pulled(queue, context)
        if queue == QUEUES[0] and pulled.calls[queue] == 2:
            begun.set()
            await go_on.wait()
            await context.pull_consumer.update_offset(queue, 2)  # an offset of before the reset

    async with PullScheduleService("g", nameserver=lab.address).register_pull_task_callback("T", callback):
        await begun.wait()
        await eventually(lambda: len(pulled.bodies) == 8)
        session = lab.puller.session
        await session.call(
            await session.master("broker-a", "T"),
            api.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffset(topic="T", group="g", timestamp=0, is_force=True),
        )
        await eventually(lambda: len(pulled.bodies) == 14)
        go_on.set()
        await eventually(lambda: len(pulled.bodies) == 16)
    assert await lab.offsets("g", "T") == [2, 2, 2, 2]


async def test_who_waits_for_a_turn_is_not_called_for_a_queue_that_is_gone(lab: Lab) -> None:
    """Neither for one that another member got meanwhile, nor after the stop."""
    await fill(lab, 4)
    called: list[MessageQueue] = []
    go_on = asyncio.Event()

    async def hold(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        called.append(queue)
        await go_on.wait()
        go_on.clear()

    service = PullScheduleService("g", nameserver=lab.address, pull_thread_nums=1)
    await service.register_pull_task_callback("T", hold).start()
    await eventually(lambda: len(called) == 1)
    async with PullScheduleService("g", nameserver=lab.address).register_pull_task_callback("T", Pulled()) as other:
        await eventually(lambda: len(service.queues) == len(other.queues) == 2)
        mine = set(service.queues)
        go_on.set()
        await eventually(lambda: len(called) == 2)
        assert called[1] in mine
        stopping = asyncio.create_task(service.stop())
        await eventually(lambda: service.membership.leaving is not None)
        go_on.set()
        await stopping
        assert len(called) == 2


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_callback_may_stop_its_service(lab: Lab, kind: str) -> None:
    await fill(lab, 1)
    service = PullScheduleService("g", nameserver=lab.address)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    async def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        await service.stop()
        stopped.set()

    def function(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        asyncio.run_coroutine_threadsafe(service.stop(), loop).result(10)
        loop.call_soon_threadsafe(stopped.set)

    await service.register_pull_task_callback("T", callback if kind == "coroutine" else function).start()
    async with asyncio.timeout(10):
        await stopped.wait()
        await service.stop()
    with pytest.raises(BrokerRefused, match="no consumer for this group, g"):
        await lab.puller.session.members("g", "T")


async def test_everybody_pulls_everything_when_broadcasting(lab: Lab, tmp_path: Path) -> None:
    """Each from its own offsets, which it finds again; the broker's are of no account."""
    await fill(lab, 8)

    def member(name: str, pulled: Pulled) -> PullScheduleService:
        settings = ClientSettings(instance_name=name, nameserver=lab.address)
        service = PullScheduleService("g", broadcast=True, offset_folder=tmp_path, settings=settings)
        return service.register_pull_task_callback("T", pulled)

    first, second, again = Pulled(), Pulled(), Pulled()
    async with member("a", first), member("b", second):
        await eventually(lambda: len(first.bodies) == len(second.bodies) == 8)
    assert await lab.offsets("g", "T") == [0, 0, 0, 0]
    await fill(lab, 1)
    async with member("a", again):
        await eventually(lambda: again.bodies == [b"0"])
    with pytest.raises(BadConfig, match="add broadcast=True"):
        PullScheduleService("g", nameserver=lab.address, offset_folder=tmp_path)


async def test_wrong_use_is_told(lab: Lab) -> None:
    service = PullScheduleService("g", nameserver=lab.address)
    with pytest.raises(UsageError, match="Nothing is scheduled: call register_pull_task_callback"):
        await service.start()
    with pytest.raises(UsageError, match="The callback is of type int"):
        service.register_pull_task_callback("T", 5)  # type: ignore[arg-type]
    async with service.register_pull_task_callback("T", Pulled()):
        with pytest.raises(StateError, match="Make a new PullScheduleService to start again"):
            await service.start()
