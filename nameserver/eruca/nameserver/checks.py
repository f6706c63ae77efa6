"""The settings of a nameserver looked at together, and what a start would find in its way on this machine.

Must not know what one value may be (the fields declare that), and where a value was set. Invariant: nothing is changed
on the disk, and the port is free again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy
from pathlib import Path

from eruca.nameserver.config import NamesrvConfig, complete
from eruca.nameserver.kv import BadKVFile, KVStore
from eruca.remoting.access.settings import access_faults
from eruca.remoting.files import NoAccess, no_folder, not_writable
from eruca.remoting.listener import try_port
from eruca.remoting.log_files import unusable
from eruca.remoting.log_settings import unwritable
from eruca.remoting.settings import Finding


def fits(config: NamesrvConfig, given: Collection[str]) -> Iterator[Finding]:
    """What does not fit together, and folders that cannot be."""
    yield from config.tls.findings()
    yield from config.metrics.collisions({config.listen_port: "listenPort"})
    full = complete(copy(config))
    for key, path in _files(full, given).items():
        if (fault := no_folder(path.parent)) is not None:
            yield Finding(key, fault)
        elif path.is_dir():
            yield Finding(key, f"names {path}, and that is a folder: name a file")


def works_here(config: NamesrvConfig, given: Collection[str]) -> Iterator[Finding]:
    """What is wrong with its files, its address and its port."""
    full = complete(copy(config))
    files = {
        key: path for key, path in _files(full, given).items() if no_folder(path.parent) is None and not path.is_dir()
    }
    for key, path in files.items():
        if (fault := not_writable(path.parent)) is not None:
            yield Finding(key, fault)
    if "kvConfigPath" in files:
        yield from _values(full)
    yield from config.tls.unusable()
    yield from unwritable(config.log)
    yield from _held(config)
    yield from access_faults(config.access, full.rocketmq_home)


def _files(config: NamesrvConfig, given: Collection[str]) -> dict[str, Path]:
    """The files that it writes; where configStorePath is not set, the file of -c may take its place."""
    files = {"kvConfigPath": config.kv_file()}
    return files | ({"configStorePath": config.settings_file()} if "configStorePath" in given else {})


def _values(config: NamesrvConfig) -> Iterator[Finding]:
    try:
        KVStore(config.kv_file())
    except (BadKVFile, NoAccess) as fault:
        yield Finding("kvConfigPath", f"does not work: {fault}")


def _held(config: NamesrvConfig) -> Iterator[Finding]:
    """What another process holds. With listenPort=0 that may be this nameserver, which runs: then it is a warning."""
    fault = try_port(config.bind_address, config.listen_port)
    if fault is not None:
        yield Finding(fault.key, f"does not work, the nameserver {fault}")
    for each in (*config.metrics.taken(), *unusable(config.log, "namesrv")):
        yield each._replace(is_fault=bool(config.listen_port))
