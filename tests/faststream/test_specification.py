"""The AsyncAPI document of a broker."""

from __future__ import annotations

import pytest
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from eruca.client import Credentials, Tls
from eruca.faststream import RocketMQBroker, RocketMQRouter
from eruca.faststream.security import settings_of


class Order(BaseModel):
    number: int


def test_channels_servers_and_payloads() -> None:
    router = RocketMQRouter(prefix="shop_")
    broker = RocketMQBroker("mq1:9876;mq2:9876", description="The shop", routers=[router])

    @router.subscriber("orders", "wishes", description="What guests want")
    @router.publisher("bills", title="Bills")
    async def cook(order: Order) -> str:
        return ""

    document = AsyncAPI(broker, schema_version="3.0.0").to_specification().to_jsonable()
    assert document["servers"] == {
        "development": {
            "host": "mq1:9876",
            "pathname": "",
            "protocol": "rocketmq",
            "protocolVersion": "4.9",
            "description": "The shop",
        }
    }
    assert set(document["channels"]) == {"shop_orders:Cook", "shop_wishes:Cook", "Bills"}
    assert document["components"]["schemas"]["Order"]["properties"] == {
        "number": {"title": "Number", "type": "integer"}
    }


def test_the_nameserver_of_the_document_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", "mq7:9876")
    assert RocketMQBroker().specification.url == ["rocketmq://mq7:9876"]
    monkeypatch.delenv("ROCKETMQ_NAMESRV_ADDR")
    assert RocketMQBroker().specification.url == ["rocketmq://localhost:9876"]
    assert RocketMQBroker(specification_url="rocketmq://outside:1").specification.url == ["rocketmq://outside:1"]


def test_security_is_an_account_and_tls() -> None:
    assert settings_of(None) == {}
    assert settings_of(SASLPlaintext("key", "secret")) == {"credentials": Credentials("key", "secret")}
    assert settings_of(BaseSecurity(use_ssl=True)) == {"tls": Tls()}
    with pytest.raises(ValueError, match="RocketMQBroker does not support SASLScram256"):
        RocketMQBroker(security=SASLScram256("key", "secret"))
