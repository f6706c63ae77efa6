"""A throw-away certificate for servers in TLS's test mode.

Owns the process that makes it: the package cryptography stays out of the daemons. Must not know who trusts it: nobody
can.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from eruca.remoting.tls import BadTls

_MAKE = """
import pathlib, sys
from eruca.remoting.certificates import Authority, write_private
made = Authority.make().issue(["localhost", "127.0.0.1", "::1"])
write_private(pathlib.Path(sys.argv[1]), made.certificate + made.key_pem())
"""


def make_test_certificate(file: Path) -> None:
    """Write a certificate and its key into one file, which only this user may read. Raises BadTls."""
    done = subprocess.run([sys.executable, "-c", _MAKE, str(file)], capture_output=True, text=True, timeout=60)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["it ended"]
        raise BadTls(
            "tls.test.mode.enable needs the package cryptography to make a certificate (pip install 'eruca[tls]'): "
            f"{why[0]}"
        )
