"""The transport: connections, the router of a server, servers, and channels to peers (rocketmq-remoting in 4.9.7).

Knows frames and the table of endpoints; knows nothing of brokers, nameservers and clients.
"""

from eruca.remoting.calls import Answer
from eruca.remoting.channels import Channels
from eruca.remoting.connection import Connection, FastPath
from eruca.remoting.connection_limits import ConnectionLimits
from eruca.remoting.errors import CallTimedOut, ConnectFailed, ConnectionLost, RemotingError
from eruca.remoting.loop import run
from eruca.remoting.request import Call, Reply
from eruca.remoting.router import Result, Router, Routes
from eruca.remoting.rpc_hooks import Renamer, Signer
from eruca.remoting.server import Server
from eruca.remoting.tls import BadTls, Tls, TlsFiles

__all__ = [
    "Answer",
    "BadTls",
    "Call",
    "CallTimedOut",
    "Channels",
    "ConnectFailed",
    "Connection",
    "ConnectionLimits",
    "ConnectionLost",
    "FastPath",
    "RemotingError",
    "Renamer",
    "Reply",
    "Result",
    "Router",
    "Routes",
    "Server",
    "Signer",
    "Tls",
    "TlsFiles",
    "run",
]
