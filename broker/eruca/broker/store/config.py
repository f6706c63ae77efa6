"""The store's settings: a part of RocketMQ's MessageStoreConfig.

Owns names, bounds, units and defaults (those of 4.9.7). Reads no file and no environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from eruca.remoting.settings import setting

CONSUME_QUEUE_UNIT = 20
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LARGEST_FILE = (1 << 31) - 1
"""Bytes of a file, at most, since Java's tools count them in an int."""
LONGEST_REPLY = 15 << 20
"""Bytes of messages in a reply, at most; a frame has at most 16 MiB."""
MOST_MESSAGES = 65_536
"""Messages in a reply, at most."""
MOST_HOURS = 8_760_000
"""A thousand years, for files that are never deleted for their age."""
_HOURS = r"\s*([01]?[0-9]|2[0-3])\s*(;\s*([01]?[0-9]|2[0-3])\s*)*;?\s*"
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level of ``messageDelayLevel``; level 1 is the first.

    Raises:
        ValueError: a part that is not a number with one of the units s, m, h, d.
    """
    levels = []
    for part in text.split():
        match = re.fullmatch(r"(\d+)([smhd])", part)
        if match is None:
            raise ValueError(f"messageDelayLevel has {part!r}; write numbers with s, m, h or d, such as 30s")
        levels.append(int(match[1]) * _UNITS[match[2]])
    return tuple(levels)


def _are_delay_levels(text: str) -> bool:
    try:
        return bool(parse_delay_levels(text))
    except ValueError:
        return False


@dataclass(kw_only=True)
class StoreRules:
    """The settings that an operator gives and the store takes as they are, with their bounds; names and defaults are
    those of MessageStoreConfig in 4.9.7. Sizes in bytes, times in milliseconds unless a name says otherwise."""

    mapped_file_size_commit_log: int = setting(1 << 30, at_least=4096, at_most=LARGEST_FILE)
    """Bytes of a file of the commit log; all brokers with one name need the same."""
    mapped_file_size_consume_queue: int = setting(6_000_000, at_least=20, at_most=LARGEST_FILE)
    """Bytes of a file of a consume queue, rounded up to whole entries of 20."""
    max_hash_slot_num: int = setting(5_000_000, at_least=1, at_most=LARGEST_FILE // 4)
    """Hash slots of an index file."""
    max_index_num: int = setting(20_000_000, at_least=2, at_most=LARGEST_FILE // 20)
    """Entries of an index file."""
    message_index_enable: bool = True
    """Whether messages are indexed by key."""
    max_message_size: int = setting(4 << 20, at_least=1, at_most=12 << 20)
    """Bytes of a message's body, at most."""
    sync_flush_timeout: int = setting(5000, at_least=1)
    """Milliseconds that a send waits for the disk under SYNC_FLUSH."""
    flush_interval_commit_log: int = setting(500, at_least=1)
    """Milliseconds between two flushes of the commit log under ASYNC_FLUSH."""
    flush_commit_log_thorough_interval: int = setting(10_000, at_least=1)
    """Milliseconds after which the commit log is flushed even if little was written."""
    flush_commit_log_least_pages: int = setting(4, at_least=0)
    """Pages of 4 KiB that must be written before the commit log is flushed."""
    flush_interval_consume_queue: int = setting(1000, at_least=1)
    """Milliseconds between two writes of consume queues."""
    flush_consume_queue_thorough_interval: int = setting(60_000, at_least=1)
    """Milliseconds between two flushes of consume queues to the disk."""
    max_transfer_bytes_on_message_in_memory: int = setting(262_144, at_least=1, at_most=LONGEST_REPLY, live=True)
    """Bytes of a pull's answer from memory, at most."""
    max_transfer_count_on_message_in_memory: int = setting(1024, at_least=1, at_most=MOST_MESSAGES, live=True)
    """Messages of a pull's answer from memory, at most."""
    max_transfer_bytes_on_message_in_disk: int = setting(262_144, at_least=1, at_most=LONGEST_REPLY, live=True)
    """Bytes of a pull's answer from the disk, at most."""
    max_transfer_count_on_message_in_disk: int = setting(1024, at_least=1, at_most=MOST_MESSAGES, live=True)
    """Messages of a pull's answer from the disk, at most."""
    access_message_in_memory_max_ratio: int = setting(40, at_least=0, at_most=100, live=True)
    """Percent of the machine's memory within which data counts as being in memory."""
    max_msgs_num_batch: int = setting(64, at_least=1, at_most=MOST_MESSAGES, live=True)
    """Messages of an answer to a query by key, at most."""
    file_reserved_time: int = setting(72, at_least=0, at_most=MOST_HOURS, live=True)
    """Hours for which a file of messages is kept after its last write."""
    delete_when: str = setting("04", live=True, pattern=_HOURS, words="hours from 00 to 23 joined by ;")
    """Hours of the day at which expired files are deleted, several joined by ``;``."""
    disk_max_used_space_ratio: int = setting(75, at_least=10, at_most=95, live=True)
    """Percent of the disk in use above which expired files are deleted at any hour."""
    disk_space_clean_forcibly_ratio: float = setting(0.85, at_least=0, at_most=1)
    """The part of the disk in use above which the oldest files are deleted though they are not expired."""
    disk_space_warning_level_ratio: float = setting(0.90, at_least=0, at_most=1)
    """The part of the disk in use above which sends are refused."""
    clean_file_forcibly_enable: bool = setting(True, live=True)
    """Whether files that are not expired may be deleted for lack of space."""
    clean_resource_interval: int = setting(10_000, at_least=1)
    """Milliseconds between two searches for expired files."""
    message_delay_level: str = setting(
        DEFAULT_DELAY_LEVELS, valid=_are_delay_levels, words="numbers with s, m, h or d, separated by blanks: 1s 30s 2h"
    )
    """The delay of each level, level 1 first."""
    check_crc_on_recover: bool = setting(True, key="checkCRCOnRecover")
    """Whether a recovery checks the bodies of messages; that of a slave, or of a broker of a group, always does."""


@dataclass(kw_only=True)
class StoreConfig(StoreRules):
    """The configuration of one store."""

    store_path_root_dir: Path = field(default_factory=lambda: Path.home() / "store")
    store_path_commit_log: Path | None = None
    """None: ``commitlog`` under the root."""
    flush_disk_type: str = "ASYNC_FLUSH"
    """``ASYNC_FLUSH`` or ``SYNC_FLUSH``."""
    recover_check_bytes: int = 4 << 20
    """How much of the log's end is checked again after a clean stop."""
    retry_after_full: float = 0.2
    """Seconds after an append that found no room, until room is looked for again."""
    hot_bytes: int = 256 << 20
    """Data nearer than this to the log's end is read through the mapping, the rest by pread."""

    def __post_init__(self) -> None:
        self.store_path_root_dir = Path(self.store_path_root_dir)
        if self.flush_disk_type not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
            raise ValueError(f"flushDiskType is {self.flush_disk_type!r}; allowed are ASYNC_FLUSH and SYNC_FLUSH")
        if self.mapped_file_size_commit_log < 4096 or self.mapped_file_size_consume_queue < CONSUME_QUEUE_UNIT:
            raise ValueError("mappedFileSizeCommitLog is at least 4096 and mappedFileSizeConsumeQueue at least 20")
        if self.max_hash_slot_num < 1 or self.max_index_num < 2:
            raise ValueError("maxHashSlotNum is at least 1 and maxIndexNum at least 2")
        parse_delay_levels(self.message_delay_level)

    @property
    def commit_log_path(self) -> Path:
        """The folder of the commit log files."""
        return Path(self.store_path_commit_log or self.store_path_root_dir / "commitlog")

    @property
    def consume_queue_path(self) -> Path:
        """The folder of the consume queues."""
        return self.store_path_root_dir / "consumequeue"

    @property
    def index_path(self) -> Path:
        """The folder of the key index."""
        return self.store_path_root_dir / "index"

    @property
    def consume_queue_file_size(self) -> int:
        """The configured size, rounded up to whole units as RocketMQ does."""
        return -(-self.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT

    @property
    def sync_flush(self) -> bool:
        """Whether a send is acknowledged only when it is on disk."""
        return self.flush_disk_type == "SYNC_FLUSH"
