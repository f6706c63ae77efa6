"""The smallest remoting client there is: one blocking request with JSON headers; and frames by hand, wrong ones too.

For tests that must ask a server without any client of either side. Knows the frame, not its meaning.
"""

import json
import socket
import ssl
import struct
from typing import Any


def frame(
    header: bytes, body: bytes = b"", *, form: int = 0, size: int | None = None, length: int | None = None
) -> bytes:
    """A frame, its lengths as they should be or as they are said to be."""
    size = len(header) if size is None else size
    length = 4 + len(header) + len(body) if length is None else length
    return struct.pack(">iI", length, (size & 0xFF_FFFF) | form << 24) + header + body


def send_header(**more: object) -> bytes:
    """The JSON header of a send (310) to the topic Torture; ``more`` takes the place of its parts."""
    fields = {"a": "p", "b": "Torture", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
    head = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 407}
    return json.dumps({**head, **more}).encode()


def ask(
    address: str,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    timeout: float = 3.0,
    tls: ssl.SSLContext | None = None,
) -> tuple[dict[str, Any], bytes]:
    """Header and body of the answer; raises OSError when there is none."""
    host, _, port = address.rpartition(":")
    header = json.dumps(
        {
            "code": code,
            "extFields": fields or {},
            "flag": 0,
            "language": "JAVA",
            "opaque": 1,
            "serializeTypeCurrentRPC": "JSON",
            "version": 401,
        }
    ).encode()
    plain = socket.create_connection((host, int(port)), timeout=timeout)
    with plain if tls is None else tls.wrap_socket(plain, server_hostname=host) as peer:
        peer.sendall(frame(header, body))
        with peer.makefile("rb") as answers:
            length, marked = struct.unpack(">ii", answers.read(8))
            size = marked & 0xFF_FFFF
            return json.loads(answers.read(size)), answers.read(length - 4 - size)
