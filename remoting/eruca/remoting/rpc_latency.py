"""What requests took, from the read that brought them to their answer, by request and response code.

Owns the counts. Must not know the requests. Facts: ``rocketmq_rpc_latency`` in RocketMQ 5, with its bounds, its labels
and its whole milliseconds. Requests count from the turn of the event loop in which they were read: where that turn
begins is known without asking a clock, to a millisecond. Invariant: a request costs a few hundred nanoseconds here, and
those that a fast path takes share that with all others of their read.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

from eruca.protocol import frame
from eruca.protocol.codes import RequestCode, ResponseCode
from eruca.remoting.histogram import OTHER, Histogram

BOUNDS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
"""Milliseconds."""
SHORT = 0.001
"""Seconds: whole milliseconds are counted, so what took less adds nothing to their sum."""
UNKNOWN = -1
"""Stands for all codes that are not known: they come from outside, and there is no end of them."""
LABELS = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")

_Key = tuple[int, int, int, bool]


class RpcLatency:
    """The latencies of one daemon's requests."""

    def __init__(self) -> None:
        self._table: dict[_Key, Histogram] = {}
        self._usual: dict[int, Histogram] = {}
        """Those of requests that are answered with 0 without having waited, by code: nearly all."""

    def answered(self, head: frame.Head[Any], response: int, since: float, *, held: bool = False) -> None:
        """Count one request that was read at ``since`` (by the loop's time), and is answered now."""
        took = monotonic() - since
        code = head.code
        if response or head.flag or held:
            histogram = self._histogram(code, response, head.flag & frame.ONEWAY_FLAG, held)
        else:
            histogram = self._usual[code] if code in self._usual else self._of_usual(code)
        if took < SHORT:
            histogram.counts[0] += 1
        else:
            histogram.add(int(took * 1000))

    def of(self, code: int, response: int = 0) -> Histogram:
        """What requests of one kind took, in ms, for a fast path that counts many at once."""
        return self._histogram(code, response, 0, False)

    def _of_usual(self, code: int) -> Histogram:
        found = self._histogram(code, 0, 0, False)
        if code in _REQUESTS:
            self._usual[code] = found
        return found

    def _histogram(self, code: int, response: int, oneway: int, held: bool) -> Histogram:
        key = (code if code in _REQUESTS else UNKNOWN, response, oneway, held)
        return self._table.get(key) or self._table.setdefault(key, Histogram(BOUNDS))

    def rows(self) -> Iterator[tuple[tuple[str, ...], Histogram]]:
        """The latencies by LABELS."""
        for (code, response, oneway, held), histogram in self._table.items():
            if not any(histogram.counts):
                continue
            result = "oneway" if oneway else "success"
            polling = "true" if held else "false"
            yield ("remoting", request_name(code), response_name(response), polling, result), histogram


def request_name(code: int) -> str:
    """A request code as the label has it: ``send_message_v2``."""
    return RequestCode(code).name.lower() if code in _REQUESTS else OTHER


def response_name(code: int) -> str:
    """A response code as the label has it: ``success``."""
    return ResponseCode(code).name.lower() if code in _RESPONSES else str(code)


_REQUESTS = frozenset(RequestCode)
_RESPONSES = frozenset(ResponseCode)
