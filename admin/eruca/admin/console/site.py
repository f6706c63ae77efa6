"""The application: HTML and JSON of each page, forms, the script and the style sheet.

Owns the way from a request to a ``Visit``, the templates, and the answer for an error: a page with one sentence.
Decides nothing about a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from eruca.admin.console import access, dead_letters, groups, messages, overview, resets, servers, shapes, topics  # noqa: F401 (they register their pages)
from eruca.admin.console.guard import Guard, Keys, same
from eruca.admin.console.visit import ACTS, FILES, PAGES, Act, Console, Load, Page, Visit
from eruca.admin.errors import AdminError, BadValue, NoAnswer, NotFound, PeerRefused, UsageError
from eruca.admin.text import harmless
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import ProtocolError

HERE = Path(__file__).parent
_ABSENT = {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND, ResponseCode.CONSUMER_NOT_ONLINE}
_JSON = "application/json"
MOST_FIELDS = 10_000

Answer = Callable[[Request], Awaitable[Response]]


def application(console: Console, keys: Keys) -> ASGIApp:
    """The whole console, behind its guard."""
    site = _Site(console, keys)
    routes = [
        Route("/favicon.ico", site.icon),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    for each in PAGES:
        routes.append(Route(each.path, site.html(each)))
        routes.append(Route("/api" + each.path, site.json(each)))
        if each.path == "/":
            routes.append(Route("/api/overview", site.json(each)))
    for path, load in FILES.items():
        routes.append(Route(path, site.file(load)))
    for path, do in ACTS.items():
        routes.append(Route(path, site.form(do), methods=["POST"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: site.failed})
    return Guard(app, keys)


class _Site:
    def __init__(self, console: Console, keys: Keys) -> None:
        self._console = console
        self._keys = keys
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        functions: list[Callable[..., object]] = [shapes.figure, shapes.lag, shapes.percent, shapes.size, shapes.moment]
        functions += [shapes.duration, shapes.segment, shapes.line, shapes.highest, shapes.rows]
        functions += [shapes.capital, shapes.permission, shapes.timeline, exact]
        self._templates.filters.update({each.__name__: each for each in functions})

    async def icon(self, request: Request) -> Response:
        """Browsers ask for it by this name."""
        return FileResponse(HERE / "static" / "favicon.svg", media_type="image/svg+xml")

    def html(self, page: Page) -> Answer:
        """A page for a person."""

        async def answer(request: Request) -> Response:
            try:
                return self._rendered(request, page.template, 200, it=await page.find(self._visit(request)))
            except (AdminError, ProtocolError) as error:
                return self._trouble(request, error)

        return answer

    def json(self, page: Page) -> Answer:
        """The same page for a program."""

        async def answer(request: Request) -> Response:
            try:
                found = await page.find(self._visit(request))
            except (AdminError, ProtocolError) as error:
                body = msgspec.json.encode({"error": harmless(str(error))})
                return Response(body, _status(error), media_type=_JSON)
            return Response(msgspec.json.encode(found), media_type=_JSON)

        return answer

    def file(self, load: Load) -> Answer:
        """Bytes that a browser keeps as a file."""

        async def answer(request: Request) -> Response:
            try:
                found = await load(self._visit(request))
            except (AdminError, ProtocolError) as error:
                return self._trouble(request, error)
            headers = {"Content-Disposition": 'attachment; filename="body.bin"'}
            return Response(found, media_type="application/octet-stream", headers=headers)

        return answer

    def form(self, do: Act) -> Answer:
        """A change; afterwards the browser asks for the page that it leads to."""

        async def answer(request: Request) -> Response:
            text = (await request.body()).decode(errors="replace")
            given = await asyncio.to_thread(_fields, text)  # a large message takes seconds
            if not same(given.pop("form_token", ""), self._keys.form):
                raise HTTPException(403, "the form is of another run of the console: open its page again")
            try:
                return RedirectResponse(await do(self._visit(request, given)), 303)
            except (AdminError, ProtocolError) as error:
                return self._trouble(request, error)

        return answer

    async def failed(self, request: Request, error: Exception) -> Response:
        """The page for what Starlette itself refuses."""
        assert isinstance(error, HTTPException)
        text = "there is no such page" if error.status_code == 404 else error.detail
        if error.status_code == 404 and request.url.path.startswith("/api/"):
            known = ("/overview" if each.path == "/" else each.path for each in PAGES)
            text += f"; there are {', '.join(f'/api{path}' for path in known)}"
        if request.url.path.startswith("/api/"):
            return Response(msgspec.json.encode({"error": text}), error.status_code, media_type=_JSON)
        return self._rendered(request, "error.html", error.status_code, text=text)

    def _visit(self, request: Request, given: dict[str, str] | None = None) -> Visit:
        return Visit(
            console=self._console,
            names={name: str(value) for name, value in request.path_params.items()},
            given=_fields(request.url.query) if given is None else given,
            peer=f"{request.client.host}:{request.client.port}" if request.client else "",
        )

    def _trouble(self, request: Request, error: Exception) -> Response:
        return self._rendered(request, "error.html", _status(error), text=harmless(str(error)))

    def _rendered(self, request: Request, template: str, status: int, **values: object) -> HTMLResponse:
        text = self._templates.get_template(template).render(
            console=self._console,
            form_token=self._keys.form,
            path=request.url.path,
            query=request.query_params,
            **values,
        )
        return HTMLResponse(text, status)


def _shown(value: object) -> object:
    """What a template shows: no name and no body may turn the direction of writing, or hide a letter."""
    return harmless(value) if type(value) is str and not value.isprintable() else value


def exact(text: str) -> Markup:
    """A value that a form brings back as it is."""
    return escape(text)


def _fields(text: str) -> dict[str, str]:
    """What was filled in; several values of one name have blanks between them."""
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise HTTPException(400, f"a form has at most {MOST_FIELDS} fields") from None
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: " ".join(each) for name, each in found.items()}


def _status(error: Exception) -> int:
    """The status of HTTP for an error of a command."""
    if isinstance(error, NotFound) or (isinstance(error, PeerRefused) and error.code in _ABSENT):
        return 404
    if isinstance(error, BadValue | UsageError):
        return 400
    return 504 if isinstance(error, NoAnswer) else 409
