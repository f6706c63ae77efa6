"""Asks a daemon over HTTP whether it is ready, for health checks of containers and for scripts.

Owns the question and the sentence. Must not know what makes a daemon ready: its page says it.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import urlsplit

from eruca.remoting.descriptors import reason

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Never through a proxy of the environment: the daemon is on this machine, or near."""


class NotReady(Exception):
    """The daemon is not ready, or cannot be asked; the message says why."""


def ask(url: str, timeout: float) -> str:
    """The answer of a daemon that is ready, in a sentence; ``timeout`` in seconds. Raises NotReady."""
    if not url.startswith(("http://", "https://")):
        raise NotReady(f"{url} is no address of a page: write http://host:port/readyz")
    try:
        with _DIRECT.open(url, timeout=timeout) as answer:  # the scheme was checked
            answer.read(64 * 1024)
    except urllib.error.HTTPError as refused:
        said = _reasons(refused.read(64 * 1024))
        raise NotReady(f"{url}: {said or _no_page(url, refused.code)}") from None
    except (OSError, ValueError, HTTPException) as fault:
        cause = getattr(fault, "reason", fault)
        said = reason(cause) if isinstance(cause, OSError) else str(cause)
        raise NotReady(f"{url} does not answer: {said}") from None
    return f"{url}: ready"


def _no_page(url: str, code: int) -> str:
    """What an answer says that has no reasons; where there is no such page, which one to ask for."""
    advice = f", as there is no such page: ask for {urlsplit(url)._replace(path='/readyz').geturl()}"
    return f"HTTP {code}{advice if code == 404 else ''}"


def _reasons(page: bytes) -> str:
    """What /readyz says against the daemon; empty for another page."""
    try:
        return "; ".join(f"{part}: {reason}" for part, reason in json.loads(page)["reasons"].items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
