"""What operators ask of a push consumer while it runs, beside what every member of its group answers (``membership``).

Owns no state: it answers from the queues that are owned, and the listeners at work.
"""

from __future__ import annotations

from eruca.client.config import ClientSettings
from eruca.client.consuming import report
from eruca.client.consuming.concurrent import Concurrent
from eruca.client.consuming.consumer_stats import ConsumerStats
from eruca.client.consuming.membership import GroupMember
from eruca.client.consuming.orderly import Orderly
from eruca.client.consuming.process_queue import ProcessQueue
from eruca.client.consuming.suspension import Suspendable
from eruca.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeType,
)
from eruca.protocol.queues import MessageQueue
from eruca.protocol.record import Record


class PushMember(Suspendable, GroupMember):
    """A member of a group that reads its queues and hands the messages to listeners."""

    orderly: bool
    concurrency: int
    started_at: int
    paces: ConsumerStats
    _consume_type = ConsumeType.CONSUME_PASSIVELY
    _settings: ClientSettings
    _processing: Concurrent | Orderly | None

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member owns now."""
        return sorted(self._ownership.readers) if self._ownership is not None else []

    @property
    def under_way(self) -> dict[MessageQueue, ProcessQueue]:
        """What was pulled of each queue and is not consumed yet. May be asked for by any thread."""
        readers = dict(self._ownership.readers) if self._ownership is not None else {}
        return {queue: reader.run for queue, reader in readers.items()}

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        """What this consumer is doing (307)."""
        readers = self._ownership.readers if self._ownership is not None else {}
        held = self._processing.held if isinstance(self._processing, Orderly) else None
        return report.running_info(self, readers.values(), self._settings.nameserver_list(), with_stacks, held)

    async def consume_directly(self, record: Record, broker: str) -> ConsumeMessageDirectlyResult:
        """Let the listener have one message, outside all queues (309)."""
        assert self._processing is not None
        return await report.consume_directly(self._processing, record, broker)
