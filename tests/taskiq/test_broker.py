"""Tasks over a real broker, run by Taskiq's own receiver."""

from __future__ import annotations

import asyncio
import runpy
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from taskiq import SendTaskError, SimpleRetryMiddleware
from taskiq.receiver import Receiver

from eruca.client import PullConsumer
from eruca.client.errors import BadMessage
from eruca.standalone.background import BackgroundCluster
from eruca.taskiq import RocketMQTaskiqBroker
from tests.client.conftest import small_broker
from tests.support.examples import examples_of


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(tmp_path_factory.mktemp("taskiq"), broker=small_broker()) as cluster:
        yield cluster


@pytest.fixture
def broker(cluster: BackgroundCluster, request: pytest.FixtureRequest) -> RocketMQTaskiqBroker:
    name = request.node.name.partition("[")[0][:80]
    return RocketMQTaskiqBroker(cluster.address, topic=name, group=name)


@asynccontextmanager
async def working(broker: RocketMQTaskiqBroker) -> AsyncIterator[None]:
    """A worker that runs this broker's tasks."""
    broker.is_worker_process = True
    await broker.startup()
    finish = asyncio.Event()
    worker = asyncio.ensure_future(Receiver(broker, run_startup=False).listen(finish))
    try:
        yield
    finally:
        finish.set()
        await worker
        await broker.shutdown()


class Done:
    """What tasks told."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._news = asyncio.Event()

    def __call__(self, value: Any) -> None:
        self.values.append(value)
        self._news.set()

    async def reaches(self, number: int) -> list[Any]:
        async with asyncio.timeout(30):
            while len(self.values) < number:
                self._news.clear()
                await self._news.wait()
        return self.values


async def test_a_task_is_run_with_its_arguments(broker: RocketMQTaskiqBroker) -> None:
    done = Done()

    @broker.task(task_name="add")
    async def add(a: int, b: int) -> None:
        done(a + b)

    async with working(broker):
        for number in range(3):
            await add.kiq(number, b=10)
        assert sorted(map(str, await done.reaches(3))) == ["10", "11", "12"]


async def test_a_delayed_task_waits(broker: RocketMQTaskiqBroker) -> None:
    done = Done()

    @broker.task(task_name="stamp")
    async def stamp(name: str) -> None:
        done((name, time.monotonic()))

    async with working(broker):
        begun = time.monotonic()
        await stamp.kicker().with_labels(delay=0.4).kiq("later")
        await stamp.kiq("now")
        await done.reaches(2)
    [(first, _), (second, at)] = done.values
    assert (first, second) == ("now", "later")
    assert at - begun >= 0.4


async def test_a_delay_is_a_number(broker: RocketMQTaskiqBroker) -> None:
    @broker.task(task_name="never")
    async def never() -> None: ...

    await broker.startup()
    try:
        with pytest.raises(SendTaskError) as error:
            await never.kicker().with_labels(delay="soon").kiq()
    finally:
        await broker.shutdown()
    assert isinstance(error.value.__cause__, BadMessage)
    assert str(error.value.__cause__) == "the label delay='soon' is no number of seconds"


async def test_a_failed_task_is_sent_again_by_the_middleware(broker: RocketMQTaskiqBroker) -> None:
    done = Done()
    broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))

    @broker.task(task_name="flaky", retry_on_error=True)
    async def flaky() -> None:
        done("try")
        if len(done.values) < 2:
            raise ValueError("not yet")

    async with working(broker):
        await flaky.kiq()
        assert await done.reaches(2) == ["try", "try"]


async def test_a_task_without_an_ack_comes_again_at_the_next_worker(cluster: BackgroundCluster) -> None:
    taken: list[bytes] = []
    for _ in range(2):
        broker = RocketMQTaskiqBroker(cluster.address, topic="again", group="again")

        @broker.task(task_name="work")
        async def work() -> None: ...

        broker.is_worker_process = True
        await broker.startup()
        try:
            if not taken:
                await work.kiq()
            async with asyncio.timeout(30):
                async for message in broker.listen():
                    taken.append(message.data)
                    break
        finally:
            await broker.shutdown()
    assert len(taken) == 2 and taken[0] == taken[1]


async def test_tasks_of_a_key_lie_in_one_queue(broker: RocketMQTaskiqBroker, cluster: BackgroundCluster) -> None:
    cluster.create_topic(broker.topic, queues=8)

    @broker.task(task_name="step")
    async def step(number: int) -> None: ...

    await broker.startup()
    try:
        for number in range(4):
            await step.kicker().with_labels(ordered_by="order-7").kiq(number)
        async with PullConsumer("look", nameserver=cluster.address) as reader:
            queues = await reader.fetch_queues(broker.topic)
            assert sorted([await reader.max_offset(queue) for queue in queues]) == [0] * 7 + [4]
    finally:
        await broker.shutdown()


@pytest.mark.parametrize("code", examples_of("taskiq.md"))
def test_an_example(code: str, cluster: BackgroundCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", cluster.address)
    (tmp_path / "tasks.py").write_text(code)
    runpy.run_path(str(tmp_path / "tasks.py"), run_name="__main__")
