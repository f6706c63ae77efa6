"""Checks producers for the state of their transactions (request 39), and gives up those that nobody decides.

Owns when and whom to ask (TransactionalMessageCheckService and ProducerManager.getAvailableChannel in 4.9.7);
``halves`` writes the results. Sends one-way requests and waits for nothing. Times are in ms of the monotonic clock.
Unlike in 4.9.7 a check counts only when a producer is connected, every half message is due by its own age, whatever the
one before it, and immunity uses up no checks. While no message is admitted nobody is asked: a check is a copy of the
half message, and its answer would be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from eruca.broker.config import BrokerConfig
from eruca.broker.services.admission import Admission
from eruca.broker.services.half_records import checks_of
from eruca.broker.services.halves import Halves
from eruca.broker.state.clients import Clients, Member
from eruca.broker.state.undecided import Half
from eruca.protocol import api, names
from eruca.protocol.headers.send import CheckTransactionState
from eruca.protocol.record import TOPIC_MAX, Record, encode_record
from eruca.remoting import Connection
from eruca.remoting.log_repeats import Repeats

AT_ONCE = 64
"""Half messages that are checked before other tasks get their turn."""
QUEUE_MAX = 2**31 - 1
_HOUR = 3_600_000

log = structlog.get_logger("eruca.broker")


class CheckBacks:
    """The rounds of asking; ``asked`` and ``given_up`` count since the start."""

    def __init__(
        self,
        config: BrokerConfig,
        halves: Halves,
        clients: Clients,
        admission: Admission,
        monotonic: Callable[[], int],
    ) -> None:
        self.asked = 0
        self.given_up = 0
        self._config = config
        self._halves = halves
        self._clients = clients
        self._admission = admission
        self._monotonic = monotonic
        self._next_round = 0
        self._turn = 0
        self._repeats = Repeats()

    def begin(self) -> None:
        """Let the first round come one interval from now on."""
        self._next_round = self._monotonic() + self._config.transaction_check_interval

    async def keep(self) -> None:
        """To be called each second: the next round, when ``transactionCheckInterval`` is over since the last.

        Nobody is asked before what a former broker had begun is ended.
        """
        if self._halves.settling and not await self._halves.settled():
            return  # nor is progress published, which would leave it out
        self._halves.keep()
        now = self._monotonic()
        if now >= self._next_round and not self._admission.suspended:
            self._next_round = now + self._config.transaction_check_interval
            await self.round()

    async def round(self) -> None:
        """Check every half message that is due; one that is put back meanwhile is not."""
        begun = self._monotonic()
        undecided = self._halves.undecided
        absent: set[str] = set()
        checked = 0
        for offset, half in undecided.items():
            if not self._due(half, begun) or undecided.get(offset) is not half:
                continue
            checked += 1
            if checked % AT_ONCE == 0:
                await asyncio.sleep(0)
                if undecided.get(offset) is not half:
                    continue
            if not self._check(offset, half, begun, absent):
                again = self._repeats.failed("store")
                if again is not None:
                    log.error("check_backs_postponed", reason="the store does not take messages", **again)
                break
        else:
            self._repeats.over("store")
        if absent:
            log.info("no_producer_to_ask", groups=sorted(absent))

    def _due(self, half: Half, now: int) -> bool:
        patience = half.immunity if half.immunity is not None else self._config.transaction_time_out
        return half.stored < now and now - half.begun >= patience

    def _check(self, offset: int, half: Half, now: int, absent: set[str]) -> bool:
        """Check one half message or give it up; False when nothing can be stored."""
        too_old = now - half.begun > self._config.store.file_reserved_time * _HOUR
        reachable = bool(self._reachable(half.group))
        if not reachable and not too_old:
            absent.add(half.group)
            return True
        record = self._halves.read(offset)
        if record is None:
            return True
        checks = checks_of(record)
        place = _real_place(record)
        if not reachable or place is None or too_old or checks >= self._config.transaction_check_max:
            log.warning("transaction_given_up", unique_key=record.unique_key, checks=checks)
            self.given_up += 1
            return not self._halves.give_up(offset, record).status
        producer = self._producer(half.group, place[0])
        if producer is None:
            absent.add(half.group)
            return True
        copy = self._halves.put_back(offset, record, checks + 1)
        if copy is None:
            return False
        self.asked += 1
        _ask(producer, copy, place)
        return True

    def _reachable(self, group: str) -> list[tuple[Connection, Member]]:
        """The connected members of a producer group that read what they are sent."""
        members = self._clients.producers.get(group, {})
        return [each for each in members.items() if not each[0].closed and not each[0].congested]

    def _producer(self, group: str, topic: str) -> Connection | None:
        """A member that may send to the topic, each in its turn.

        The question holds the message, and everybody may call himself a member of a producer group.
        """
        allowed = [connection for connection, member in self._reachable(group) if member.may_send(topic)]
        if not allowed:
            return None
        self._turn += 1
        return allowed[self._turn % len(allowed)]


def _real_place(half: Record) -> tuple[str, int] | None:
    """The real topic and queue; None for a half message with a place that no message can have, of another's store."""
    topic, queue = half.properties.get(names.REAL_TOPIC, ""), half.properties.get(names.REAL_QUEUE_ID, "0")
    if len(topic.encode()) > TOPIC_MAX or len(queue) > len(str(QUEUE_MAX)):
        return None
    queue_id = int(queue) if queue.isdecimal() else 0
    return (topic, queue_id) if queue_id <= QUEUE_MAX else None


def _ask(producer: Connection, half: Record, place: tuple[str, int]) -> None:
    """Send 39: the message in it is at its real topic and queue."""
    topic, queue_id = place
    body = encode_record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        body=half.body,
        properties=half.properties_text,
        flag=half.flag,
        sys_flag=half.sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
    )
    question = CheckTransactionState(
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        msg_id=half.unique_key,
        transaction_id=half.unique_key,
        offset_msg_id=half.offset_message_id,
    )
    producer.oneway(api.CHECK_TRANSACTION_STATE, question, body)
