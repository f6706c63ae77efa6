"""The transport: connections, the router of requests, and channels to peers (rocketmq-remoting in 4.9.7).

Knows frames and the table of endpoints; knows nothing of brokers, nameservers and clients. What only
servers need is not imported here: clients and mqadmin start without it.
"""

from eruca.remoting.calls import Answer
from eruca.remoting.channels import Channels
from eruca.remoting.connection import Connection, FastPath
from eruca.remoting.errors import CallTimedOut, ConnectFailed, ConnectionLost, RemotingError
from eruca.remoting.loop import run
from eruca.remoting.request import Call, Reply
from eruca.remoting.router import Result, Router, Routes
from eruca.remoting.rpc_hooks import Renamer, Signer
from eruca.remoting.tls import BadTls, Tls, TlsFiles

__all__ = [
    "Answer",
    "BadTls",
    "Call",
    "CallTimedOut",
    "Channels",
    "ConnectFailed",
    "Connection",
    "ConnectionLost",
    "FastPath",
    "RemotingError",
    "Renamer",
    "Reply",
    "Result",
    "Router",
    "Routes",
    "Signer",
    "Tls",
    "TlsFiles",
    "run",
]
