"""The native step: functions in C (folder ``c``). ``pure`` has the same ones in Python; ``native`` chooses."""

import mmap

from eruca.broker.store.consume_queue import ConsumeQueue
from eruca.broker.store.layout import (
    CommitForm,
    HalfPlace,
    HalfSent,
    IndexEntry,
    Request,
    SendForm,
    SendHosts,
    Taken,
    Tip,
)

LAYOUTS: dict[str, tuple[str, ...]]

def batch(
    queue: ConsumeQueue,
    entries: bytes,
    extra_properties: bytes,
    memory: mmap.mmap | bytearray,
    at: int,
    position: int,
    room: int,
    max_record: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    now: int,
    /,
) -> tuple[tuple[int, ...], list[Request]] | None:
    """Write the messages of a batch body into the log's memory; their offsets, and what dispatch has to do.

    None, with nothing written, for a batch that has a fault or no room. As ``Appender._write_batch``.
    """

def commits(halves: list[HalfPlace], low: int, tip: Tip, form: CommitForm, /) -> tuple[int, int]:
    """Store the real messages of half messages, and behind each one the op message that closes it.

    Stops at the first half message that needs more: one that does not lie whole and unchanged in ``tip``'s memory, from
    the commit log offset ``low`` on, that may have to wait (TIMER_D), or whose real queue is not known yet; or where
    there is no room in the log. As ``Halves.decide``. Returns how many were committed, and the new end of the log; the
    pending requests of each are that of its real message and that of its op message.
    """

def sends(
    data: bytes, at: int, forms: dict[bytes, SendForm], tip: Tip, hosts: SendHosts, most: int, /
) -> tuple[int, bytes, int, list[tuple[tuple[str, int], int, int, int]], list[HalfSent]]:
    """Store and answer the sends of known forms in ``data`` from ``at`` on, at most ``most`` requests.

    Stops at the first frame that needs more: another request or form, properties with a meaning for the broker, no room
    in the log. Its counterpart is not in ``pure``, but the plain handler (``handlers.send``), which takes over there.
    ``forms`` has the forms by ``templates.json_send_key`` and ``binary_send_key``.

    Returns where it stopped, the replies, the new end of the log, by queue the numbers of requests, messages and bytes,
    and the half messages.
    """

def take(
    units: bytes, codes: bytes | None, most: int, room: int, memory: memoryview, start: int, low: int, high: int, /
) -> Taken | None:
    """The records of a queue's units, at most ``most`` and ``room`` bytes (but one at least).

    ``codes`` are the hashes of the tags that are wanted, 8 bytes each, None for all; ``memory`` holds the log from
    ``start`` on, of which what lies from ``low`` to ``high`` may be read. Returns the records in their order, as copies
    in one piece or as views, how many they are, how many units were looked at, and their size in bytes; None where a
    record lies elsewhere. As ``Reader._read_each``.
    """

def fetch(
    units: bytes,
    codes: bytes | None,
    most: int,
    room: int,
    fd: int,
    start: int,
    low: int,
    high: int,
    wait: bool,
    topic: bytes,
    queue_id: int,
    offset: int,
    checked_from: int,
    /,
) -> Taken | None:
    """As ``take``, out of a file of the log that begins at ``start``, without its mapping.

    The first unit is that of the queue offset ``offset``; records below ``checked_from`` must be sound and of this
    place, queue and offset: one that is not makes it None, as a file does that ends before a record.

    Raises:
        BlockingIOError: not all of it is in the page cache, and ``wait`` is False.
        OSError: the disk fails.
    """

def follow(work: list[Request], at: int, touched: set[ConsumeQueue], timed: tuple[str, ...], /) -> int:
    """Append the units of records to their queues, from ``work[at]`` on; the queues are added to ``touched``.

    Returns the number of the first request that needs more: one of a topic in ``timed``, or one that does not follow
    its queue's last unit.
    """

def keys(work: list[Request], /) -> list[IndexEntry]:
    """The index entries of records: of each its unique key, then its business keys. A rollback has none."""

def put_entries(
    map: mmap.mmap, slots: int, entries_at: int, count: int, begin_time: int, entries: list[IndexEntry], /
) -> int:
    """Write entries into an index file with ``slots`` slots, whose entries begin at ``entries_at``.

    ``count`` is the number of the first entry, ``begin_time`` the store time of the file's first message. Returns how
    many slots were used for the first time.

    Raises:
        ValueError: the entries do not fit.
    """
