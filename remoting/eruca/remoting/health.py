"""The pages of a daemon over HTTP: whether it lives, whether it is ready, its metrics, what it is.

Owns the four pages, those that a daemon adds, and their port. Must not know what makes a daemon ready, or what is
measured. Invariants: whether a daemon lives depends on its event loop and on nothing else, else an outage of a
nameserver or a full disk would restart every broker; no page shows a setting; a page that fails breaks no other one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog

from eruca.remoting.descriptors import reason
from eruca.remoting.exposition import Exposition, Unavailable
from eruca.remoting.http import JSON, Fields, HttpServer, Page
from eruca.remoting.listener import port_fault
from eruca.remoting.loop_monitor import LoopMonitor
from eruca.remoting.metrics import METRICS_KEYS, Metrics
from eruca.remoting.readiness import Readiness

STILL_ALIVE = 5.0
"""Seconds without a turn of the event loop after which a daemon does not count as alive."""

log = structlog.get_logger("eruca.start")


class HealthPages:
    """The pages of one daemon; ``info`` returns what /info shows.

    ``off`` is why there are no metrics, None where there are. ``more`` are pages by path, each with what it says, and
    whether that is 200 or 503.
    """

    def __init__(
        self,
        readiness: Readiness,
        loop_monitor: LoopMonitor,
        metrics: Metrics,
        info: Callable[[], Mapping[str, Any]],
        off: str | None = None,
        more: Mapping[str, Callable[[], tuple[dict[str, Any], bool]]] | None = None,
    ) -> None:
        self._readiness = readiness
        self._loop_monitor = loop_monitor
        self._exposition = Exposition(metrics)
        self._info = info
        self._off = off
        self._fault: tuple[str, str] | None = None
        """Why there are no pages on the usual port: its address, and the reason."""
        self._server = HttpServer(
            {
                "/healthz": self._healthz,
                "/readyz": self._readyz,
                "/metrics": self._metrics,
                "/info": self._about,
                **{path: _page(say) for path, say in (more or {}).items()},
            }
        )

    @property
    def port(self) -> int:
        """The listening port; 0 where there is none."""
        return self._server.port

    async def start(self, host: str, port: int | None, usual: int) -> None:
        """Listen on the operator's port, not at all for 0; without a choice on the usual one, if it is free.

        Raises PortTaken for a port that was chosen.
        """
        if port == 0:
            return
        self._loop_monitor.start()
        number = usual if port is None else port
        try:
            await self._server.start(host, number)
        except OSError as fault:
            if port is not None:
                raise port_fault(fault, host, port, "metricsPort, for health and metrics", METRICS_KEYS) from None
            self._fault = f"{host}:{number}", reason(fault)

    def announce(self) -> None:
        """Log where the pages are, when the daemon has started."""
        if self.port:
            log.info("health_pages", port=self.port, pages=", ".join(self._server.routes))
        elif self._fault is not None:
            log.warning(
                "metrics_port_taken",
                address=self._fault[0],
                reason=self._fault[1],
                consequence="this daemon has no pages of health and metrics",
                advice="set a metricsPort (0: none)",
            )

    async def stop(self) -> None:
        """Listen no more."""
        await self._server.stop()

    def _healthz(self, _: Fields) -> Page:
        silent = self._loop_monitor.silent
        alive = silent <= STILL_ALIVE
        return _as_json({"alive": alive, "loopTurnedSecondsAgo": round(silent, 3)}, alive)

    def _readyz(self, _: Fields) -> Page:
        reasons = self._readiness.reasons
        return _as_json({"ready": not reasons, "reasons": dict(reasons)}, not reasons)

    def _about(self, _: Fields) -> Page:
        return _as_json(dict(self._info()), True)

    async def _metrics(self, fields: Fields) -> Page:
        if self._off is not None:
            return Page(f"{self._off}\n".encode(), status=HTTPStatus.NOT_FOUND)
        if not self._readiness.serving:
            return Page(b"this daemon is starting or stopping\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            kind, text = await self._exposition.scrape(fields.get("accept", ""))
        except Unavailable as fault:
            return Page(str(fault).encode(), status=HTTPStatus.NOT_IMPLEMENTED)
        return Page(text, kind)


def _page(say: Callable[[], tuple[dict[str, Any], bool]]) -> Callable[[Fields], Page]:
    def answer(_: Fields) -> Page:
        content, fine = say()
        return _as_json(content, fine)

    return answer


def _as_json(content: dict[str, Any], fine: bool) -> Page:
    status = HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(json.dumps(content, ensure_ascii=False).encode() + b"\n", JSON, status)
