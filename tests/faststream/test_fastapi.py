"""RocketMQRouter in an application of FastAPI."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from httpx import ASGITransport, AsyncClient

from eruca.faststream import TestRocketMQBroker
from eruca.faststream.fastapi import Context, RocketMQBroker, RocketMQMessage, RocketMQRouter
from tests.faststream.conftest import Seen

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient


def tip() -> str:
    return "a tip"


async def test_a_route_publishes_and_a_handler_has_dependencies(
    address: str, topics: Callable[[int], str], seen: Seen
) -> None:
    orders, bills = topics(1), topics(1)
    router = RocketMQRouter(address, group="api", logger=None)

    @router.subscriber(orders, max_workers=2)
    @router.publisher(bills)
    async def cook(
        number: int,
        given: Annotated[str, Depends(tip)],
        message: RocketMQMessage,
        header: Annotated[str, Context("message.headers.h")],
        broker: RocketMQBroker,
    ) -> dict[str, int]:
        assert broker is router.broker
        seen((number, given, message.raw_message.topic, header))
        return {"bill": number}

    @router.subscriber(bills)
    async def collect(bill: dict[str, int]) -> None:
        seen(bill)

    @router.get("/order")
    async def order() -> str:
        await router.broker.publish(7, orders, headers={"h": "1"})
        return "ordered"

    app = FastAPI()
    app.include_router(router)
    async with router.lifespan_context(app), AsyncClient(transport=ASGITransport(app), base_url="http://shop") as web:
        assert (await web.get("/order")).json() == "ordered"
        assert await seen.reaches(2) == [(7, "a tip", orders, "1"), {"bill": 7}]


async def test_it_is_tested_without_a_cluster() -> None:
    router = RocketMQRouter()

    @router.subscriber("orders")
    async def cook(number: int) -> None: ...

    async with TestRocketMQBroker(router.broker) as broker:
        await broker.publish(7, "orders")
        cook.mock.assert_called_once_with(7)


def test_the_application_starts_and_stops_the_broker_and_serves_its_document(address: str, topic: str) -> None:
    router = RocketMQRouter(address, logger=None, schema_url="/messages")

    @router.subscriber(topic)
    async def cook(number: int) -> None: ...

    app = FastAPI()
    app.include_router(router)
    with TestClient(app) as client:
        assert router.broker.running
        assert topic in client.get("/messages.json").text
        assert client.get("/messages").status_code == 200
    assert not router.broker.running


def test_another_router_of_the_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="not supported"):
        RocketMQRouter().include_router(RocketMQRouter())
