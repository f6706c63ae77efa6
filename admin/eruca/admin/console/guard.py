"""Who may ask the console, and from where.

Owns the token of the printed address, the cookie that a browser gets for it, the token in each form, and the headers
of every answer. It refuses a request whose ``Host`` is another name (DNS rebinding), whose ``Origin`` is another site,
or that has no cookie of this console; and a change without ``--write`` or the form's token. Knows no page.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with none at all, browsers send no Origin with a form
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LONGEST_FORM = 16 << 20
"""Bytes of a form: a message of 4 MiB is in it, of whose bytes each may be written as ``%C3``."""
_OPEN = {"/favicon.ico", "/static/console.css", "/static/console.js", "/static/favicon.svg"}
"""What a browser may have without a cookie: it says nothing of a cluster."""
_ENTERED = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>mqadmin console</title>'
    '<meta http-equiv="refresh" content="0; url=/"></head><body><a href="/">Open the console</a></body></html>'
)


@dataclass(frozen=True)
class Keys:
    """The secrets of one run, and the names by which browsers may ask."""

    hosts: Collection[str]
    """``host:port``; the first one stands in the printed address."""
    scheme: str = "http"
    write: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """Stands in the printed address."""
    form: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """Stands in each form of a page."""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """The value of the cookie."""

    @property
    def address(self) -> str:
        """What a person opens."""
        return f"{self.scheme}://{next(iter(self.hosts))}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers do not keep those of two ports apart."""
        return f"mqadmin-{next(iter(self.hosts)).rpartition(':')[2]}"


class Guard:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, let in, or hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._judge(scope)
        await (answer or self._app)(scope, receive, with_headers)

    def _judge(self, scope: Scope) -> Response | None:
        """The answer to a request that goes no further."""
        headers, keys = Headers(scope=scope), self._keys
        if headers.get("host", "").lower() not in keys.hosts:
            return _refused(421, f"this console is not called so: open {keys.scheme}://{next(iter(keys.hosts))}")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"{keys.scheme}://{host}" for host in keys.hosts}:
            return _refused(403, f"a page of {origin} asked for this: open the console itself")
        changes = scope["method"] not in ("GET", "HEAD")
        if changes and origin is None:
            return _refused(403, "a change comes from a form of the console: the request has no Origin")
        if scope["path"] in _OPEN and not changes:
            return None
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if token and not changes:
            return self._enter() if same(token, keys.token) else _refused(403, "this token is of another run")
        if not same(_cookie(headers, keys.cookie), keys.session):
            return _refused(403, "open the address that mqadmin console printed: it has the token in it")
        if changes and not keys.write:
            return _refused(403, "this console only reads: start it with --write to change something")
        if changes and int(headers.get("content-length") or LONGEST_FORM + 1) > LONGEST_FORM:
            return _refused(413, f"a form has at most {LONGEST_FORM >> 20} MiB, and says how long it is")
        return None

    def _enter(self) -> Response:
        """A page of ours that leads to the first one: a redirect from elsewhere would not carry a strict cookie."""
        answer = HTMLResponse(_ENTERED)
        answer.set_cookie(
            self._keys.cookie,
            self._keys.session,
            httponly=True,
            samesite="strict",
            secure=self._keys.scheme == "https",
        )
        return answer


def same(given: str, right: str) -> bool:
    """Whether a secret is right, in a time that says nothing of it."""
    return secrets.compare_digest(given.encode(), right.encode())


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _refused(status: int, reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", status)
