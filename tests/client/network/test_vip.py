"""The brokers' second port: messages go there, everything else to the first."""

from __future__ import annotations

from eruca.client import ClientSettings, Message, Producer, PullConsumer
from eruca.remoting.addresses import vip_address
from tests.client.conftest import Lab, eventually


async def test_messages_go_to_the_second_port_when_asked_to(lab: Lab) -> None:
    settings = ClientSettings(nameserver=lab.address, vip_channel=True)
    main = lab.cluster.broker.address
    async with Producer("p", settings=settings) as producer, PullConsumer(settings=settings) as puller:
        sent = await producer.send(Message("T", b"one"))
        await producer.send_oneway(Message("T", b"two"), queue=sent.queue)
        channels = producer.session.channels
        assert vip_address(main) in channels.addresses()
        assert main not in channels.addresses()

        assert [each.body for each in (await puller.pull(sent.queue, 0)).records][:1] == [b"one"]
        assert main in channels.addresses()
        await eventually(lambda: lab.cluster.broker.broker.store.max_offset("T", sent.queue.queue_id) == 2)


async def test_messages_go_to_the_first_port_otherwise(lab: Lab) -> None:
    await lab.send("T", b"one")

    assert vip_address(lab.cluster.broker.address) not in lab.producer.session.channels.addresses()
