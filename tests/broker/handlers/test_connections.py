"""Who is connected, as operators ask: 203, 204, 328."""

from eruca.protocol.bodies import Connection, ConsumerConnection, ProducerConnection, ProducerInfo, ProducerTableInfo
from tests.support.desk import Desk

CONSUMERS, PRODUCERS, ALL_PRODUCERS = 203, 204, 328


async def test_the_members_of_a_consumer_group_and_what_it_subscribes(desk: Desk) -> None:
    java = await desk.consumer("g", "T", "U", client_id="one")
    go = await desk.consumer("g", "T", "U", client_id="two", peer=await desk.peer("GO", 317))
    answer = await desk.ask(CONSUMERS, {"consumerGroup": "g"})
    body = ConsumerConnection.decode(answer.body)
    assert sorted(body.connection_set, key=lambda each: each.client_id) == [
        Connection(client_addr=java.address, client_id="one", language="JAVA", version=407),
        Connection(client_addr=go.address, client_id="two", language="GO", version=317),
    ]
    assert set(body.subscription_table) == {"T", "U"}
    assert (body.consume_type, body.message_model, body.consume_from_where) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )


async def test_a_group_that_nobody_is_in(desk: Desk) -> None:
    answer = await desk.ask(CONSUMERS, {"consumerGroup": "gone"})
    assert (answer.code, answer.remark) == (206, "the consumer group[gone] not online")


async def test_a_group_whose_last_member_left(desk: Desk) -> None:
    member = await desk.consumer("g", "T")
    assert (await member.ask(35, {"clientID": "c", "consumerGroup": "g"})).code == 0
    assert (await desk.ask(CONSUMERS, {"consumerGroup": "g"})).code == 206


async def test_the_members_of_a_producer_group(desk: Desk) -> None:
    producer = await desk.producer("pg", client_id="p1")
    answer = await desk.ask(PRODUCERS, {"producerGroup": "pg"})
    assert ProducerConnection.decode(answer.body).connection_set == [
        Connection(client_addr=producer.address, client_id="p1", language="JAVA", version=407)
    ]
    answer = await desk.ask(PRODUCERS, {"producerGroup": "gone"})
    assert (answer.code, answer.remark) == (1, "the producer group[gone] not exist")


async def test_all_producers(desk: Desk) -> None:
    assert ProducerTableInfo.decode((await desk.ask(ALL_PRODUCERS)).body).data == {}
    producer = await desk.producer("pg", client_id="p1")
    assert ProducerTableInfo.decode((await desk.ask(ALL_PRODUCERS)).body).data == {
        "pg": [
            ProducerInfo(
                client_id="p1",
                language="JAVA",
                last_update_timestamp=desk.now,
                remote_ip=f"/{producer.address}",
                version=407,
            )
        ]
    }
