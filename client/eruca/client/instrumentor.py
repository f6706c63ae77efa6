"""The instrumentor for `opentelemetry-instrument`: every client of a program is watched, without a change to it.

Owns only that; what is recorded is ``telemetry``'s. Found by the entry point ``opentelemetry_instrumentor``. Needs
``pip install opentelemetry-instrumentation``, which programs that are started by `opentelemetry-instrument` have.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]  # untyped

from eruca.client.hooks import of_all_clients
from eruca.client.telemetry import OpenTelemetry

_stack = ExitStack()
"""Of the process: an instrumentor is one object, too."""


class ErucaInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """``ErucaInstrumentor().instrument()`` watches the clients that are made from then on.

    ``instrument`` takes ``tracer_provider``, ``meter_provider`` and ``propagator``, as ``OpenTelemetry`` does.
    ``uninstrument`` ends it for clients that are made later. A client with an ``OpenTelemetry`` of its own keeps
    that.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """What is instrumented."""
        return ("eruca >= 0.1",)

    def _instrument(self, **kwargs: Any) -> None:
        given = {name: kwargs.get(name) for name in ("tracer_provider", "meter_provider", "propagator")}
        _stack.enter_context(of_all_clients(OpenTelemetry(**given)))

    def _uninstrument(self, **kwargs: Any) -> None:
        _stack.close()
