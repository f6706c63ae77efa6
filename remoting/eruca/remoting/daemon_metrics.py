"""The metrics that every daemon has: its build, its process, its event loop, its log, its requests and connections.

Owns the names of these metrics and where each is read. Must not know brokers or nameservers. What a part of the daemon
counts stays that part's attribute.
"""

from __future__ import annotations

import mmap
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from eruca.remoting import descriptors
from eruca.remoting.access.tally import Tally
from eruca.remoting.clock import ClockShift
from eruca.remoting.connection import WRITE_HIGH_WATER
from eruca.remoting.connection_limits import Rejection, ServerLoad
from eruca.remoting.log_writer import lines_lost
from eruca.remoting.loop_monitor import LoopMonitor
from eruca.remoting.metrics import Metrics, Rows
from eruca.remoting.rates import Rate
from eruca.remoting.readiness import Readiness
from eruca.remoting.rpc_latency import LABELS, RpcLatency
from eruca.remoting.server import Server
from eruca.remoting.slices import sliced
from eruca.remoting.tasks import Tasks
from eruca.remoting.tls_daemon import DaemonTls
from eruca.remoting.tls_server import REASONS
from eruca.remoting.version import version


def add_process(metrics: Metrics) -> None:
    """The figures of a process under the names that Prometheus' own libraries use, and its build."""
    started = time.time()
    build = {(version(), platform.python_version()): 1.0}
    metrics.gauge("eruca_build_info", "Always 1; the labels say what runs.", lambda: build, "version", "python")
    gauge = metrics.gauge
    metrics.counter("process_cpu_seconds_total", "CPU time of the process, in seconds.", time.process_time)
    gauge("process_start_time_seconds", "When the process started, in seconds since 1970.", lambda: started)
    shift = ClockShift()
    gauge(
        "eruca_clock_shift_seconds",
        "Seconds that the wall clock has moved against the monotonic clock since the start.",
        lambda: shift.seconds,
    )
    gauge("process_resident_memory_bytes", "Memory of the process, without what is swapped out.", _memory)
    gauge("process_open_fds", "File descriptors that are open.", descriptors.in_use)
    gauge("process_max_fds", "File descriptors that may be open.", descriptors.limit)
    metrics.counter("eruca_log_lines_lost_total", "Lines of the log that could not be written.", lines_lost)


def _memory() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return float("nan")


def add_daemon(metrics: Metrics, readiness: Readiness, tasks: Tasks, loop: LoopMonitor, latency: RpcLatency) -> None:
    """What runs in the daemon, and how fast."""
    metrics.gauge("eruca_ready", "Whether /readyz says that the daemon is ready.", lambda: float(readiness.ready))
    metrics.gauge(
        "eruca_not_ready", "1 for each part that is not ready.", lambda: dict.fromkeys(readiness.reasons, 1.0), "part"
    )
    metrics.gauge("eruca_tasks", "Background tasks that run.", lambda: len(tasks.running))
    metrics.histogram(
        "eruca_event_loop_lag_seconds",
        "Seconds by which ticks of the event loop, 50 ms apart, were late.",
        lambda: loop.late,
    )
    metrics.histogram(
        "rocketmq_rpc_latency",
        "Milliseconds from the read that brought a request to its answer.",
        lambda: list(latency.rows()),
        *LABELS,
    )


def add_security(metrics: Metrics, tls: DaemonTls, refusals: Tally) -> None:
    """Certificates, and what access control has refused."""
    metrics.gauge(
        "eruca_tls_certificate_expires_seconds",
        "Seconds until a certificate of the daemon expires, as a server or as a client of others.",
        tls.seconds_left,
        "certificate",
        merge=min,
    )
    server = tls.server
    if server is not None:
        metrics.counter("eruca_tls_handshakes_total", "TLS handshakes that succeeded.", lambda: server.handshakes)
        metrics.counter(
            "eruca_tls_plain_total", "Plain connections to ports that serve TLS, too.", lambda: server.plain
        )
        metrics.counter(
            "eruca_tls_refused_total",
            "Connections that were refused in a TLS handshake or in place of one, by reason.",
            lambda: {reason: server.refused[reason] for reason in REASONS},
            "reason",
        )
    metrics.counter(
        "eruca_access_refusals_total", "Requests that access control has refused.", lambda: refusals.refused, "reason"
    )


def add_connections(metrics: Metrics, servers: Sequence[Server], load: ServerLoad) -> None:
    """The connections of the daemon's ports, and their limits."""
    metrics.gauge(
        "eruca_connections", "Connections of clients, by their state.", lambda: _connections(servers), "state"
    )
    metrics.counter(
        "eruca_connections_rejected_total",
        "Connections that were turned away, by the limit that was reached.",
        lambda: {reason.value: sum(server.rejected[reason] for server in servers) for reason in Rejection},
        "reason",
    )
    metrics.counter(
        "eruca_connections_cut_off_total",
        "Connections that were closed as all together held too much.",
        lambda: {"unfinished": load.budgets.unfinished.cut_off, "unsent": load.budgets.unsent.cut_off},
        "budget",
    )
    metrics.limit("connections", lambda: load.count.most, lambda: load.count.taken)
    metrics.limit(
        "connections_per_address",
        lambda: load.limits.connections_per_address,
        lambda: max(load.by_address.values(), default=0),
    )
    metrics.limit("unfinished_bytes", lambda: load.budgets.unfinished.most, load.budgets.unfinished.total)
    metrics.limit("unsent_bytes_per_connection", lambda: WRITE_HIGH_WATER, lambda: load.budgets.unsent.largest)
    metrics.limit("unsent_bytes", lambda: load.budgets.unsent.most, load.budgets.unsent.total)
    metrics.limit("descriptors", descriptors.limit, descriptors.in_use)


def add_quotas(metrics: Metrics, quotas: Mapping[str, Rate]) -> None:
    """What was refused as more than a quota."""
    metrics.counter(
        "eruca_quota_refusals_total",
        "Requests that were refused as too much for an account or address, by the quota.",
        lambda: {name: rate.refused for name, rate in quotas.items()},
        "quota",
    )


async def _connections(servers: Sequence[Server]) -> Rows:
    states = Counter({"idle": 0, "handling": 0, "half_frame": 0, "congested": 0})
    async for connection in sliced([each for server in servers for each in server.connections]):
        states[connection.state] += 1
    return states
