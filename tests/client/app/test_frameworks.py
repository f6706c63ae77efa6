"""The recipes of docs/frameworks.md: each is run with its framework, where that is installed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from eruca.client import App, ClientSettings, Message, sync
from eruca.standalone.background import BackgroundCluster
from tests.client.conftest import small_broker
from tests.support.examples import DOCS, examples_of

PAGE = "frameworks.md"


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster for all recipes."""
    with BackgroundCluster(tmp_path_factory.mktemp("frameworks"), broker=small_broker()) as cluster:
        yield cluster.address


@pytest.fixture(autouse=True)
def environment(nameserver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_NAMESRV_ADDR", nameserver)


def recipe(*words: str) -> str:
    """The example of the page with these words."""
    found = re.findall(r"^```python\n([\s\S]*?)^```$", (DOCS / PAGE).read_text(), flags=re.MULTILINE)
    [code] = [each for each in found if all(word in each for word in words)]
    return str(code)


def run(code: str) -> dict[str, Any]:
    """The names that a recipe makes."""
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code, "a recipe", "exec"), names)
    return names


def stored(nameserver: str, topic: str) -> int:
    with sync.PullConsumer(nameserver=nameserver) as puller:
        return sum(puller.max_offset(queue) for queue in puller.fetch_queues(topic))


# The client of Starlette's tests prefers a package that is younger than most installations.
old_httpx = pytest.mark.filterwarnings("ignore:Using `httpx`")


@old_httpx
def test_fastapi(nameserver: str) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    names = run(recipe("FastAPI(lifespan=app.lifespan)"))
    app: App = names["app"]
    with sync.LitePullConsumer("till", nameserver=nameserver, start_from="first").subscribe("Bills") as bills:
        for dish in ("soup", "salad"):  # the web application starts twice
            with TestClient(names["web"]) as client:
                assert len(client.post("/orders", json={"dish": dish, "plates": 2}).json()["id"]) == 32
                assert client.post("/orders", json={"plates": 2}).status_code == 422
                assert list(app.consumers) == ["kitchen"]
                [bill] = bills.poll(30)
                assert bill.value == f"2 x {dish}"
            assert not app.consumers


@old_httpx
def test_starlette(nameserver: str) -> None:
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    names = run(recipe("Starlette(lifespan=app.lifespan"))
    with sync.Producer("p", nameserver=nameserver) as producer:
        producer.send(Message("Orders", b"x"))
    before = stored(nameserver, "Orders")
    with TestClient(names["web"]) as client:
        assert len(client.post("/orders", content=b"soup").json()["id"]) == 32
    assert stored(nameserver, "Orders") == before + 1


def test_flask(nameserver: str) -> None:
    pytest.importorskip("flask")
    names = run(recipe("from flask import"))
    assert len(names["web"].test_client().post("/orders", data=b"soup").json["id"]) == 32
    names["orders"].stop()


def test_django(nameserver: str) -> None:
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        settings.configure(DATABASES={"default": database}, ALLOWED_HOSTS=["*"])
    django.setup()
    from django.test import RequestFactory

    names = run(recipe("transaction.on_commit"))
    request = RequestFactory().post("/orders", data=b'{"dish": "soup"}', content_type="application/json")
    assert b"true" in names["take"](request).content
    names["orders"].stop()
    consumers = run(recipe("close_old_connections"))
    with consumers["app"].test() as test:  # other recipes have the topic, too
        test.publish("Orders", {"dish": "soup"})
        assert test.handled(consumers["cook"]).success


def test_celery(nameserver: str) -> None:
    pytest.importorskip("celery")
    names = run(recipe("from celery import"))
    assert len(names["bill"].apply(args=["soup"]).get()) == 32
    names["bills"].stop()


def test_jupyter(nameserver: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = compile(recipe("await producer.start()"), "a cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def cell() -> None:
        work = eval(code, {})
        assert inspect.isawaitable(work)
        await work

    asyncio.run(cell())
    assert capsys.readouterr().out.endswith("b'a first try'\n")


def test_every_recipe_is_run() -> None:
    tests = [test for name, test in globals().items() if name.startswith("test_") and inspect.isfunction(test)]
    asked_for = sum(inspect.getsource(test).count("(recipe(") for test in tests)
    assert asked_for - 1 == len(examples_of(PAGE))  # this test has the word, too


def test_the_deployment_names_variables_that_are_read() -> None:
    text = (DOCS / PAGE).read_text()
    variables = dict.fromkeys(re.findall(r"name: (ROCKETMQ_\w+)", text), "/dev/null")
    with pytest.raises(ValueError, match="secret_key"):  # all are known; the file is empty
        ClientSettings.from_env({**variables, "ROCKETMQ_NAMESRV_ADDR": "a:1"})
