"""The smallest remoting client there is: one blocking request with JSON headers.

For tests that must ask a server without any client of either side. Knows the frame, not its meaning.
"""

import json
import socket
import struct
from typing import Any


def ask(
    address: str,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    timeout: float = 3.0,
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
    frame = struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
    with socket.create_connection((host, int(port)), timeout=timeout) as peer:
        peer.sendall(frame)
        with peer.makefile("rb") as answers:
            length, marked = struct.unpack(">ii", answers.read(8))
            size = marked & 0xFF_FFFF
            return json.loads(answers.read(size)), answers.read(length - 4 - size)
