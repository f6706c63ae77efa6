"""What has to be settled at the brokers before the first pull of a query: its group, and its filter.

Owns the requests that create a subscription group and that let a broker compile an SQL filter. A broker that is away is
asked again, as by a pull.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from eruca.client import MessageQueue, PullConsumer
from eruca.client.errors import PASSING_CODES, BrokerRefused
from eruca.protocol import api
from eruca.protocol.bodies import CheckClientRequestBody, SubscriptionGroupConfig, SubscriptionGroupWrapper
from eruca.protocol.subscription import SQL92, build_subscription
from eruca.spark_connector.errors import SourceError
from eruca.spark_connector.options import Options
from eruca.spark_connector.runtime import replicas
from eruca.spark_connector.runtime.retry import AWAY, retry_while_away, silent


async def prepare(consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue]) -> None:
    """Create the group and check the filter before the first pull. Raises SourceError."""
    chosen = sorted(queues)
    if options.create_pull_group:
        await _create_group(consumer, chosen, options.broker_loss_timeout)
    await check_filter(consumer, options, chosen)


async def _create_group(consumer: PullConsumer, queues: Iterable[MessageQueue], within: float | None) -> None:
    """Create the group of the consumer at each broker that does not have it; an existing group keeps its settings.

    A slave says whether there is one while its master is away, and only a master creates one.
    """
    group = consumer.session.names.to_broker(consumer.group)
    body = SubscriptionGroupConfig(group_name=group).encode()

    async def create(queue: MessageQueue) -> None:
        answer, _ = await replicas.ask(consumer, queue, api.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        if group not in SubscriptionGroupWrapper.decode(answer.body).subscription_group_table:
            address = await consumer.session.master(queue.broker_name, queue.topic)
            await consumer.session.call(address, api.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    for queue in {each.broker_name: each for each in queues}.values():
        try:
            await _answered(consumer, queue, partial(create, queue), within)
        except BrokerRefused as error:
            raise SourceError(
                f"The broker {queue.broker_name} does not let this account make the group {consumer.group} "
                f"({error.remark}): make it with `mqadmin updateSubGroup` and leave createPullGroup out."
            ) from None


async def check_filter(consumer: PullConsumer, options: Options, queues: Iterable[MessageQueue]) -> None:
    """Let every broker check the SQL filter (46): in a pull, a filter with an error would match every message.

    Raises SourceError.
    """
    if options.sql_filter is None:
        return
    first = {queue.broker_name: queue for queue in sorted(queues, reverse=True)}
    for queue in first.values():
        subscription = build_subscription(queue.topic, options.sql_filter, version=0, expression_type=SQL92)
        body = CheckClientRequestBody(
            client_id=consumer.session.client_id, group=consumer.group, subscription_data=subscription
        )
        try:
            ask = partial(replicas.ask, consumer, queue, api.CHECK_CLIENT_CONFIG, body=body.encode())
            await _answered(consumer, queue, ask, options.broker_loss_timeout)
        except BrokerRefused as error:
            raise SourceError(
                f'The broker {queue.broker_name} refuses sqlFilter="{options.sql_filter}": {error.remark} '
                "(SQL filters also need enablePropertyFilter=true at the broker)."
            ) from None


async def _answered(
    consumer: PullConsumer, queue: MessageQueue, ask: Callable[[], Awaitable[object]], within: float | None
) -> None:
    """Ask until the broker of a queue has answered; a refusal for a reason that does not pass is its answer, too.

    Raises BrokerRefused for that, and SourceError for a broker that does not answer.
    """
    refusals: list[BrokerRefused] = []

    async def once() -> None:
        try:
            await ask()
        except BrokerRefused as error:
            if error.code in PASSING_CODES:
                raise
            refusals.append(error)

    try:
        await retry_while_away(consumer, queue, once, within)
    except AWAY as error:
        raise silent(queue.broker_name, error) from error
    if refusals:
        raise refusals[0]
