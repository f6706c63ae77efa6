"""The broker's message store in RocketMQ's file formats."""

from eruca.broker.store.commit_log import StoreDamaged
from eruca.broker.store.config import StoreConfig, parse_delay_levels
from eruca.broker.store.file_system import FileSystem, NotInMemory
from eruca.broker.store.marks import StoreLocked, StoreTooNew
from eruca.broker.store.progress import RecoveryStopped
from eruca.broker.store.replicator import CopyRefused, Tail
from eruca.broker.store.results import (
    Damage,
    Figures,
    Found,
    GetStatus,
    Got,
    Matcher,
    Put,
    PutBatch,
    PutStatus,
    RecoveryReport,
)
from eruca.broker.store.store import Store
from eruca.broker.store.verify import Finding, Verification, verify

__all__ = [
    "CopyRefused",
    "Damage",
    "Figures",
    "FileSystem",
    "Finding",
    "Found",
    "GetStatus",
    "Got",
    "Matcher",
    "NotInMemory",
    "Put",
    "PutBatch",
    "PutStatus",
    "RecoveryReport",
    "RecoveryStopped",
    "Store",
    "StoreConfig",
    "StoreDamaged",
    "StoreLocked",
    "StoreTooNew",
    "Tail",
    "Verification",
    "parse_delay_levels",
    "verify",
]
