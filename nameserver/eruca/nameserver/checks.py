"""The settings of a nameserver looked at together, and what a start would find in its way on this machine.

Must not know what one value may be (the fields declare that), and where a value was set. Invariant: nothing is changed
on the disk, and the port is free again.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator
from copy import copy

from eruca.nameserver.config import NamesrvConfig, complete
from eruca.nameserver.kv import BadKVFile, KVStore
from eruca.remoting.access.settings import access_faults
from eruca.remoting.files import NoAccess, folder_fault
from eruca.remoting.listener import bind, port_fault
from eruca.remoting.settings import Finding


def fits(config: NamesrvConfig, given: Collection[str]) -> Iterator[Finding]:
    """What does not fit together."""
    yield from config.tls.findings()


def works_here(config: NamesrvConfig, given: Collection[str]) -> Iterator[Finding]:
    """What is wrong with its files, its address and its port."""
    full = complete(copy(config))
    for key, path in (("kvConfigPath", full.kv_file()), ("configStorePath", full.settings_file())):
        fault = folder_fault(path.parent)
        if fault is not None:
            yield Finding(key, fault)
        elif path.is_dir():
            yield Finding(key, f"names {path}, and that is a folder: name a file")
        elif key == "kvConfigPath":
            yield from _values(full)
    yield from config.tls.unusable()
    yield from _port(config)
    yield from access_faults(config.access, full.rocketmq_home)


def _values(config: NamesrvConfig) -> Iterator[Finding]:
    try:
        KVStore(config.kv_file())
    except (BadKVFile, NoAccess) as fault:
        yield Finding("kvConfigPath", f"does not work: {fault}")


def _port(config: NamesrvConfig) -> Iterator[Finding]:
    host, port = config.bind_address, config.listen_port
    try:
        for each in bind(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE), host):
            each.close()
    except OSError as error:
        fault = port_fault(error, host, port)
        yield Finding(fault.key, f"does not work, the nameserver {fault.sentence}")
