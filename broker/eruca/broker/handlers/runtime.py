"""The broker itself, for operators (AdminBrokerProcessor in 4.9.7).

Its figures (28, 315, 907), deletions on request (306, 329), and its configuration: read it (26), and change what may
change at run time (25).
"""

from __future__ import annotations

from eruca.broker.broker import REGISTERED_SETTINGS, ROLE_SETTINGS, Broker
from eruca.broker.handlers.checks import persisting
from eruca.broker.services import runtime
from eruca.broker.services.failover import group_figures
from eruca.broker.state.statistics import Span
from eruca.protocol import api
from eruca.protocol.bodies import BrokerStatsData, BrokerStatsItem, KVTable
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.topics import BrokerStatsOf, ConfigVersion
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.audit import note_settings
from eruca.remoting.settings import values
from eruca.remoting.slices import batches, sliced

routes: Routes[Broker] = Routes()

MOST_ROUNDS = 20
"""The most rounds of deletion that one 329 starts (manual deletes of 4.9.7)."""


@routes.on(api.GET_BROKER_RUNTIME_INFO, reads=True)
async def runtime_info(broker: Broker, call: Call[Empty]) -> Reply:
    """All figures as texts by name."""
    figures, now, paths = broker.store.figures(), broker.monotonic(), broker.store.config
    table = {
        **runtime.store_figures(figures, broker.statistics, now),
        **runtime.day_figures(figures, broker.statistics),
        **runtime.broker_figures(broker.config, int(broker.loop_monitor.waited * 1000), broker.waiting_sends),
        **runtime.disk_figures(paths.store_path_root_dir, paths.commit_log_path, paths.consume_queue_path),
        **broker.delays.figures(),
        **_of_group(broker),
        **_not_ready(broker),
        "currentTimestamp": str(broker.clock()),
        "earliestMessageTimeStamp": str(await broker.store.lookup(lambda there: there.earliest_time())),
    }
    return Reply(body=KVTable(table=dict(sorted(table.items()))).encode())


def _of_group(broker: Broker) -> dict[str, str]:
    part, relay = broker.group_part, broker.relay
    return {} if part is None or relay is None else group_figures.figures(part.driver, relay.relayed)


def _not_ready(broker: Broker) -> dict[str, str]:
    reasons = broker.readiness.reasons
    return {"notReady": "; ".join(f"{part}: {reason}" for part, reason in reasons.items())} if reasons else {}


@routes.on(api.GET_BROKER_HA_STATUS, reads=True)
def replication(broker: Broker, call: Call[Empty]) -> Reply:
    """The state of replication, from a master or a slave (of RocketMQ 5)."""
    if broker.group_part is not None:
        status = broker.group_part.status(broker.clock())
    elif broker.role.is_slave:
        status = broker.ha_client.status(broker.clock())
    else:
        status = broker.slaves.status()
    return Reply(body=status.encode())


@routes.on(api.VIEW_BROKER_STATS_DATA, reads=True)
def stats(broker: Broker, call: Call[BrokerStatsOf]) -> Reply:
    """One counter over the last minute, hour and day."""
    ask = call.header
    spans = broker.statistics.spans(ask.stats_name, ask.stats_key)
    if spans is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The stats <{ask.stats_name}> <{ask.stats_key}> not exist")
    minute, hour, day = map(_item, spans)
    return Reply(body=BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day).encode())


def _item(span: Span) -> BrokerStatsItem:
    return BrokerStatsItem(sum=span.sum, tps=span.tps, avgpt=span.average)


@routes.on(api.CLEAN_EXPIRED_CONSUMEQUEUE, costly=True, changes="expired queues")
async def drop_expired_queues(broker: Broker, call: Call[Empty]) -> Reply:
    """Delete the queues whose newest message is no longer in the log."""
    with persisting("the deletion of expired queues"):
        gone = 0
        async for keys in sliced(batches(broker.store.queue_keys())):
            gone += broker.store.drop_expired_queues(keys)
    call.note(after=f"{gone} deleted")
    return Reply()


@routes.on(api.DELETE_EXPIRED_COMMITLOG, costly=True, changes="expired files of the log")
async def delete_expired_log(broker: Broker, call: Call[Empty]) -> Reply:
    """Delete the files of the log that are older than fileReservedTime, whatever the hour; code 1 within an hour after
    the clock jumped."""
    gone = 0
    with persisting("the deletion of expired files"):
        for _ in range(MOST_ROUNDS):
            count = await broker.store.clean(by_hand=True)
            gone += count
            if not count:
                break
    if not gone and (distrust := broker.store.distrust) is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, distrust)
    call.note(after=f"{gone} deleted")
    return Reply()


NOT_KEPT = "the change lasts until the broker stops: it has no configuration file (-c) that could keep it"


@routes.on(api.GET_BROKER_CONFIG, reads=True)
def show(broker: Broker, call: Call[Empty]) -> Reply:
    """Every setting as ``name=value``."""
    configuration = broker.configuration
    version = ConfigVersion(version=configuration.version.encode().decode())
    return Reply(header=version, body=configuration.text().encode())


@routes.on(api.UPDATE_BROKER_CONFIG, costly=True, changes="settings")
async def update(broker: Broker, call: Call[Empty]) -> Reply:
    """Change all given settings or none; they are in the configuration file before the answer."""
    before = values(broker.config)
    changed = broker.configuration.change(call.body)
    note_settings(call, before, changed)
    if not changed:
        return Reply()
    broker.reconfigured()
    if "logLevel" in changed:
        broker.log_levels.set(changed["logLevel"])
    if changed.keys() & REGISTERED_SETTINGS:
        broker.topics.renew()
        await broker.registration.register_all()
    with persisting("the new configuration"):
        await broker.configuration.save(changed)
    if changed.keys() & ROLE_SETTINGS:
        await broker.role.settled()
    return Reply(remark=NOT_KEPT if broker.configuration.file is None else None)
