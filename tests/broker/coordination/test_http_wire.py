"""One connection to etcd, with uvloop as in the daemons: one that has ended is no error of the loop."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from eruca.broker.coordination.http_wire import Endpoint, Wire, WireBroken


def test_a_request_over_a_connection_that_has_ended_was_not_sent() -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        wire = await Wire.connect(Endpoint.of(f"http://{host}:{port}"), None)
        wire.close()
        for _ in range(3):
            await asyncio.sleep(0)
            with pytest.raises(WireBroken) as broken:
                await wire.ask("/v3/kv/range", b"{}")
            assert not broken.value.sent
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
