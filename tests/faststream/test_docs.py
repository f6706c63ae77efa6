"""The page about FastStream: every example runs as it stands, and every option is named."""

from __future__ import annotations

import asyncio
import runpy
import warnings
from pathlib import Path
from time import monotonic

import pytest
from fastapi import FastAPI
from faststream import FastStream, TestApp

from eruca.faststream import RocketMQBroker, TestRocketMQBroker
from eruca.faststream.options import PublisherOptions, SubscriberOptions
from tests.support.examples import DOCS, examples_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

PAGE = "faststream.md"


@pytest.mark.parametrize("code", examples_of(PAGE))
def test_an_example(code: str, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.py"
    file.write_text(code.replace('"localhost:9876"', f'"{address}"'))
    names = runpy.run_path(str(file))  # a file, as FastStream reads the source of the test around its broker
    if isinstance(names.get("app"), FastStream):
        asyncio.run(run_without_cluster(names))
    if isinstance(names.get("app"), FastAPI):
        order_by_http(names["app"], capsys)


def order_by_http(app: FastAPI, capsys: pytest.CaptureFixture[str]) -> None:
    """What the page's application does with an order: its handler prints it, and the table, which it has none."""
    with TestClient(app) as client:
        taken = client.post("/orders", json={"dish": "salad"})
        assert (taken.status_code, taken.json()) == (200, "ordered")
        said, end = "", monotonic() + 20
        while "{'dish': 'salad'} none" not in said:
            assert monotonic() < end, said
            said += capsys.readouterr().out


async def run_without_cluster(names: dict[str, object]) -> None:
    broker, app = names["broker"], names["app"]
    assert isinstance(broker, RocketMQBroker) and isinstance(app, FastStream)
    async with TestRocketMQBroker(broker), TestApp(app):
        for subscriber in broker.subscribers:
            assert subscriber.running


@pytest.mark.parametrize("options", [SubscriberOptions, PublisherOptions], ids=["subscriber", "publisher"])
def test_every_option_is_named(options: type) -> None:
    page = (DOCS / PAGE).read_text()
    assert {name for name in options.__annotations__ if f"`{name}`" not in page} <= {"schema"}
