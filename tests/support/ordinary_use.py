"""Ordinary use, as a program for any system: ``python -m tests.support.ordinary_use [NAMESERVER]``.

Imports every module of the product but Spark's, then sends, consumes, asks and answers, with and without an event loop,
and runs a command of mqadmin; without a NAMESERVER with servers in this process. Prints ``done`` at the end.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import pkgutil
import sys
import tempfile

WITHOUT_IMPORT = ("eruca.standalone.demo", "eruca.standalone.pipeline", "eruca.standalone.own_authority", "__main__")
OURS = {"eruca", *sys.stdlib_module_names}


def import_all() -> None:
    """Import every module, but those that need a package of an extra that is not installed."""
    for package in ("client", "protocol", "remoting", "nameserver", "broker", "admin", "standalone"):
        root = importlib.import_module(f"eruca.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"eruca.{package}.", onerror=_left_out):
            if not any(name in module.name for name in WITHOUT_IMPORT):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError:
                    _left_out(module.name)


def _left_out(name: str) -> None:
    """Say which module is left out. What a system's own Python lacks is an error."""
    error = sys.exception()
    if not isinstance(error, ModuleNotFoundError) or (error.name or "").split(".")[0] in OURS:
        raise
    print(f"left out: {name}, as {error.name} is not installed")


async def use(nameserver: str) -> None:
    """With an event loop."""
    from eruca.client import LitePullConsumer, Message, Producer, PushConsumer

    async with (
        Producer("writers", nameserver=nameserver) as producer,
        Producer("answers", nameserver=nameserver) as two,
    ):

        async def answer(message: object) -> None:
            await two.reply(message, b"yes")  # type: ignore[arg-type]

        await producer.send(Message("Orders", b"push", keys="k"))
        async with PushConsumer("push", nameserver=nameserver, start_from="first").subscribe("Orders") as consumer:
            async for message in consumer:
                assert message.body == b"push"
                break
        async with LitePullConsumer("lite", nameserver=nameserver, start_from="first").subscribe("Orders") as lite:
            assert [each.body for each in await lite.poll(30)] == [b"push"]
        await producer.send(Message("Questions", b"warm"))
        async with PushConsumer("answering", answer, nameserver=nameserver).subscribe("Questions"):
            assert (await producer.request(Message("Questions", b"?"), timeout=60)).body == b"yes"


def use_blocking(nameserver: str) -> None:
    """Without one."""
    from eruca.client import Message, sync

    with (
        sync.Producer("blocking", nameserver=nameserver) as producer,
        sync.PullConsumer("reader", nameserver=nameserver) as reader,
    ):
        sent = producer.send(Message("Letters", b"letter"))
        found = reader.pull(sent.queue, sent.offset)
        assert [record.body for record in found.records] == [b"letter"], found


def administer(nameserver: str) -> None:
    """With mqadmin."""
    from eruca.admin.cli import run

    out = io.StringIO()
    assert asyncio.run(run(["clusterList", "-n", nameserver], {}, out)) == 0
    assert "broker-a" in out.getvalue()


def use_all(nameserver: str) -> None:
    """All of it."""
    asyncio.run(use(nameserver))
    use_blocking(nameserver)
    administer(nameserver)


def main() -> None:
    """With the servers that are named, or with some of its own."""
    import_all()
    if len(sys.argv) > 1:
        use_all(sys.argv[1])
    else:
        from eruca.standalone.background import BackgroundCluster

        with tempfile.TemporaryDirectory() as folder, BackgroundCluster(folder) as cluster:
            use_all(cluster.address)
    print("done")


if __name__ == "__main__":
    main()
