"""The wall clock is for stamps: who reads it is listed here, with the reason; all else measures by the monotonic clock.

A use is a function that reads the clock of the machine (``now_ms``, ``time.time``, ``datetime.now`` and their like) or,
in a daemon, calls the clock that it was given (``clock()``). Handing that clock on is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import parsed, product_modules

STAMPS = {
    "stamps in records: stored, sent, and read by others": {
        "eruca.admin.messages.send",
        "eruca.broker.handlers.pull._report_moved",
        "eruca.broker.handlers.replies._push",
        "eruca.broker.services.halves.Halves.op_fields",
        "eruca.broker.store.appender.Appender.put",
        "eruca.broker.store.appender.Appender.tip",
        "eruca.broker.store.recover.Recovery._finish",
        "eruca.client.consuming.send_back.retry_header",
        "eruca.client.producing.producer.Producer._start_batch",
        "eruca.client.producing.sender.Sender._drain",
        "eruca.faststream.memory._received",
        "eruca.spark_connector.pipelines.dead_letters._Resend.run",
    },
    "when the time of a request is over, which its message holds": {
        "eruca.client.network.requests.is_expired",
    },
    "when something began, in events for users": {
        "eruca.client.log.Trouble.warn",
        "eruca.client.network.presence.Presence.lost",
        "eruca.client.network.session.Session._done",
    },
    "what other clocks are compared with, and how old things are for a person": {
        "eruca.admin.commands.streams._wish",
        "eruca.admin.commands.top._look",
        "eruca.admin.commands.top.top",
        "eruca.admin.diagnosis.survey._look_at",
        "eruca.admin.diagnosis.survey._member",
        "eruca.admin.diagnosis.survey.look",
        "eruca.admin.results.checks._topic",
        "eruca.admin.results.stream.Stream.messages",
        "eruca.broker.handlers.runtime.runtime_info",
    },
    "ids and names of files that hold a time, as in RocketMQ": {
        "eruca.admin.commands.group.consumer_status",
        "eruca.admin.messages._new_key",
        "eruca.admin.resets.ways_back.keep",
        "eruca.broker.store.index.Index._add",
        "eruca.standalone.bundle.write_bundle",
        "eruca.standalone.cli.backup",
        "eruca.client.network.identity.UniqueKeys.restart",
        "eruca.client.outbox.Outbox._row_id",
        "eruca.spark_connector.write.row_ids.UniqueKeys.__init__",
        "eruca.spark_connector.write.row_ids.UniqueKeys.make",
    },
    "when a delayed message is due, and from when sends are taken": {
        "eruca.broker.handlers.replies.send_reply",
        "eruca.broker.handlers.send._send",
        "eruca.broker.handlers.send._special",
        "eruca.broker.handlers.send_back._decide",
        "eruca.broker.services.delays.Delays.run",
        "eruca.broker.services.halves.Halves._later",
        "eruca.broker.services.halves.Halves.prepare",
        "eruca.client.telemetry._about",
    },
    "the age of what has only a stamp: files, filters of groups that left, half messages of an earlier run, messages": {
        "eruca.admin.completion._names",
        "eruca.admin.results.brokers.brokers",
        "eruca.admin.results.monitor._now",
        "eruca.broker.handlers.progress._span",
        "eruca.broker.metrics.lags.Lags._age",
        "eruca.broker.metrics.storage._add_rocketmqs.reserve",
        "eruca.broker.services.halves.Halves._half_of",
        "eruca.broker.state.filters.Filters._add",
        "eruca.broker.state.filters.Filters._bury",
        "eruca.broker.state.filters.Filters.clean",
        "eruca.broker.state.filters.Filters.load",
        "eruca.broker.store.housekeeping.Housekeeping.__init__",
        "eruca.broker.store.housekeeping.Housekeeping._note_deleted",
        "eruca.broker.store.housekeeping.Housekeeping.due",
        "eruca.client.backlog._behind",
        "eruca.client.deduplication.SqliteMarks._end",
    },
    "versions of tables and subscriptions, which peers compare": {
        "eruca.broker.services.configuration.Configuration.__init__",
        "eruca.broker.services.configuration.Configuration.take",
        "eruca.broker.state.groups.Groups.__init__",
        "eruca.broker.state.groups.Groups._change",
        "eruca.broker.state.topics.Topics.__init__",
        "eruca.broker.state.topics.Topics.renew",
        "eruca.client.consuming.membership.next_version",
        "eruca.client.consuming.push_engine.PushEngine.start",
        "eruca.remoting.access.editor.AccountEditor._rewrite",
    },
    "times that operators and traces show": {
        "eruca.admin.commands.export._export_cluster",
        "eruca.admin.commands.response_time._round",
        "eruca.admin.console.changes.Changes.add",
        "eruca.admin.console.visit.now",
        "eruca.broker.handlers.clients.all_producers",
        "eruca.broker.handlers.runtime.replication",
        "eruca.nameserver.app.Nameserver.__init__",
        "eruca.remoting.daemon_metrics.add_process",
        "eruca.client.consuming.membership.GroupMember.join",
        "eruca.client.consuming.membership._queue_info",
        "eruca.client.consuming.queue_puller.QueuePuller._pull",
        "eruca.client.polling.pull_schedule.PullTask._work",
        "eruca.client.telemetry.OpenTelemetry._begin",
        "eruca.client.trace.MessageTrace.after_consume",
        "eruca.client.trace.MessageTrace.after_end_transaction",
        "eruca.client.trace.MessageTrace.before_consume",
        "eruca.client.trace.MessageTrace.before_send",
        "eruca.remoting.log_line.moment",
    },
    "the day, whose messages are counted": {
        "eruca.broker.app.BrokerApp._sample_statistics",
    },
    "a moment up to which, or from which, messages are wanted": {
        "eruca.admin.commands.queue_messages.consume_message",
        "eruca.admin.resets.engine.Reset._ages",
        "eruca.admin.text.point_of_time",
        "eruca.client.app.trial.Trial.start",
        "eruca.spark_connector.options._timestamp",
        "eruca.spark_connector.options._timestamps",
        "eruca.spark_connector.pipelines.archives._Selection.load",
        "eruca.spark_connector.pipelines.audits.audit",
        "eruca.spark_connector.pipelines.rollups._Work.resume",
        "eruca.spark_connector.pipelines.rollups.rollup",
        "eruca.spark_connector.pipelines.units.read_interval",
        "eruca.spark_connector.read.batch.BatchReader._plan",
        "eruca.spark_connector.read.stream.StreamReader._plan_first",
        "eruca.standalone.demo.steps.Demonstration._send_all",
    },
    "until when certificates are valid": {
        "eruca.remoting.certificates._builder",
        "eruca.remoting.tls_daemon.DaemonTls.seconds_left",
    },
    "the clock itself, and the parts that are given it": {
        "eruca.broker.app.BrokerApp.__init__",
        "eruca.broker.broker.Broker.__init__",
        "eruca.broker.store.store.Store.__init__",
        "eruca.remoting.clock.ClockShift.__init__",
        "eruca.remoting.clock.now_ms",
        "eruca.remoting.tls_daemon.DaemonTls.__init__",
    },
}
"""By reason: the functions that read the wall clock."""

_READS = {
    *("now_ms", "time.time", "time.time_ns", "time.CLOCK_REALTIME"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
}
_WITHOUT_A_MOMENT = {"time.localtime": 0, "time.gmtime": 0, "time.ctime": 0, "time.asctime": 0, "time.strftime": 1}
"""Functions that read the clock unless they get a moment, with the number of arguments before it."""
_DAEMONS = ("eruca.broker", "eruca.nameserver", "eruca.remoting")


class _Uses(ast.NodeVisitor):
    """The functions of a module that read the wall clock."""

    def __init__(self, module: str) -> None:
        self.found: set[str] = set()
        self._place = [module]
        self._daemon = module.startswith(_DAEMONS)
        self._names: dict[str, str] = {}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "now_ms" or node.module in ("time", "datetime"):
                full = alias.name if alias.name == "now_ms" else f"{node.module}.{alias.name}"
                self._names[alias.asname or alias.name] = full

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._inside(node)

    def _inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._place.append(node.name)
        self.generic_visit(node)
        self._place.pop()

    def visit_Call(self, node: ast.Call) -> None:
        full = self._full(node.func)
        given = self._daemon and full.split(".")[-1] in ("clock", "_clock")
        if given or len(node.args) <= _WITHOUT_A_MOMENT.get(full, -1):
            self._note()
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._look_at(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._look_at(node)

    def _look_at(self, node: ast.Attribute | ast.Name) -> None:
        if self._full(node) in _READS:
            self._note()
        self.generic_visit(node)

    def _full(self, node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            return f"{self._full(node.value)}.{node.attr}"
        return self._names.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    def _note(self) -> None:
        self.found.add(".".join(self._place))


def _uses(module: str, tree: ast.Module) -> set[str]:
    uses = _Uses(module)
    uses.visit(tree)
    return uses.found


def _of_the_product() -> Iterator[str]:
    for file in product_modules():
        module = ".".join(file.with_suffix("").parts[1:]).removesuffix(".__init__")
        yield from _uses(module, parsed(file))


@pytest.mark.usefixtures("trees")
def test_the_wall_clock_is_read_for_the_listed_reasons_only() -> None:
    listed = {place for places in STAMPS.values() for place in places}
    found = set(_of_the_product())

    assert found - listed == set(), "measure by monotonic_ms, time.monotonic or loop.time; or give the reason here"
    assert listed - found == set(), "these read it no more"


def uses_in(line: str) -> set[str]:
    """The uses in a function of these statements."""
    body = "".join(f"    {part.strip()}\n" for part in line.split(";"))
    return _uses("eruca.broker.sample", ast.parse(f"def use():\n{body}"))


@pytest.mark.parametrize(
    "line",
    [
        "import time; time.time()",
        "import time; field(default_factory=time.time_ns)",
        "from time import time; time()",
        "from time import time as present; present()",
        "import time; time.localtime()",
        "import time; time.strftime('%H')",
        "from datetime import datetime; datetime.now()",
        "import datetime; datetime.date.today()",
        "from eruca.remoting.clock import now_ms; now_ms()",
        "self._clock()",
        "broker.clock()",
    ],
)
def test_a_use_is_found(line: str) -> None:
    assert uses_in(line) == {"eruca.broker.sample.use"}


@pytest.mark.parametrize(
    "line",
    [
        "from time import monotonic; monotonic()",
        "import time; time.localtime(now)",
        "import time; time.strftime('%H', moment)",
        "from datetime import datetime; datetime.fromtimestamp(now)",
        "loop.time()",
        "Store(clock=clock)",
        "broker.monotonic()",
    ],
)
def test_what_is_no_use(line: str) -> None:
    assert uses_in(line) == set()
