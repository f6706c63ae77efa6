"""The store: its disk, its log, what is not flushed or visible yet, its recovery, its deletions, half messages.

Owns which figures of the store become metrics. Must not know how the store counts them.
"""

from __future__ import annotations

from eruca.broker.broker import Broker
from eruca.broker.services.health import no_room
from eruca.remoting.metrics import Rows

_PLACE = ("storage_type", "storage_medium")
_HERE = ("local", "disk")


def add(broker: Broker) -> None:
    """Add these metrics."""
    _add_rocketmqs(broker)
    _add_state(broker)
    _add_recovery(broker)


def _add_rocketmqs(broker: Broker) -> None:
    gauge, store = broker.metrics.gauge, broker.store
    gauge("rocketmq_storage_size", "Bytes of the store's disk that are used.", lambda: {_HERE: _used(broker)}, *_PLACE)
    gauge(
        "rocketmq_storage_flush_behind_bytes",
        "Bytes of the log that are not on the disk yet.",
        lambda: {_HERE: store.figures().flush_behind_bytes},
        *_PLACE,
    )
    gauge(
        "rocketmq_storage_dispatch_behind_bytes",
        "Bytes of the log that consumers cannot see yet.",
        lambda: {_HERE: store.figures().dispatch_behind_bytes},
        *_PLACE,
    )

    async def reserve() -> Rows:
        earliest = await store.lookup(lambda there: there.earliest_time())
        return {_HERE: max(broker.clock() - earliest, 0)} if earliest > 0 else {}

    gauge(
        "rocketmq_storage_message_reserve_time",
        "Milliseconds since the oldest message of the log was stored.",
        reserve,
        *_PLACE,
    )
    gauge("rocketmq_half_messages", "Transactions without a decision.", lambda: len(broker.halves.undecided))


def _used(broker: Broker) -> float:
    disk = broker.store.housekeeping.disk
    return disk.used if disk is not None else float("nan")


def _add_state(broker: Broker) -> None:
    metrics, store = broker.metrics, broker.store
    gauge, counter = metrics.gauge, metrics.counter
    gauge("eruca_log_min_offset_bytes", "Where the log begins.", lambda: store.figures().min_offset)
    gauge("eruca_log_max_offset_bytes", "Where the log ends.", lambda: store.figures().max_offset)
    gauge("eruca_disk_used_ratio", "The used part of the store's disk, 0 to 1.", lambda: store.figures().disk_ratio)
    gauge(
        "eruca_disk_limit_ratio",
        "The used part of the disk from which on nothing is stored.",
        lambda: store.config.disk_space_warning_level_ratio,
    )
    gauge("eruca_store_refuses", "Whether nothing can be stored at present.", lambda: float(no_room(store) is not None))
    counter("eruca_puts_refused_total", "Messages that could not be stored.", lambda: store.figures().put_failed)
    metrics.histogram("eruca_fsync_seconds", "Seconds that bringing the log to the disk took.", lambda: store.fsyncs)
    counter(
        "eruca_deleted_files_total",
        "Files that retention has deleted.",
        lambda: store.housekeeping.deleted_files,
    )


def _add_recovery(broker: Broker) -> None:
    gauge, counter, store = broker.metrics.gauge, broker.metrics.counter, broker.store
    gauge("eruca_recovery_seconds", "Seconds that the last start recovered.", lambda: store.recovery.seconds)
    gauge(
        "eruca_recovery_clean",
        "Whether the store had been closed in order before the last start.",
        lambda: float(store.recovery.clean),
    )
    counter(
        "eruca_damaged_records_total",
        "Records that were found damaged since the start, at the start included.",
        lambda: store.figures().damaged_records,
    )
    gauge(
        "eruca_skipped_log_bytes",
        "Bytes of the log that the last start found to hold no record.",
        lambda: store.figures().skipped_bytes,
    )
