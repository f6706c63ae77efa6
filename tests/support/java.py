"""Apache RocketMQ's jars from Maven Central, and the judge: its Java clients as a command server.

Owns the cache of resolved jars and compiled classes (`.cache/compat`, keyed by what they were made
from) and the judge's process. What the judge can do is written in tests/compat/java/judge.
"""

import fcntl
import hashlib
import itertools
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.processes import Process

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "compat" / "java"
CACHE = ROOT / ".cache" / "compat"
_OPENED = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
)


SHORT_LIFE = ("-XX:TieredStopAtLevel=1",)
"""Java's flags for what lives for a test or for a run of tests: compiled quickly, not to quick code."""
LONG_LIFE = ("-XX:TieredStopAtLevel=4",)
"""Java's flags for who measures; as `options` they undo SHORT_LIFE."""

# Under every name that 4.9 (logback) and 5.x (its own copy of logback) look for.
_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d %p %logger - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


def write_logback(home: Path, role: str) -> Path:
    """Logging of a Java process into `home`; the file for -Drmq.logback.configurationFile."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in (f"logback_{role}.xml", f"rmq.{role}.logback.xml"):
        (conf / name).write_text(_LOGBACK.format(log=home / f"{role}.log"))
    return conf / f"rmq.{role}.logback.xml"


def missing_tool() -> str | None:
    """Why the judges cannot run on this machine; None when they can."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"{tool} is not on the PATH; install Java 17 and Maven 3 to run this"
    return None


def opened_modules() -> list[str]:
    """The flags without which RocketMQ 4.9 does not run on Java 17."""
    return [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED] + [
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"
    ]


@cache
def jars(release: str) -> Path:
    """The folder of all jars of that RocketMQ release, resolved by Maven on the first use."""
    return resolved_jars(SOURCES / "pom.xml", f"jars-{release}", f"-Drocketmq.version={release}")


def resolved_jars(pom: Path, name: str, *options: str) -> Path:
    """The folder of the jars of that pom, resolved by Maven on the first use; `name` begins its name."""

    def resolve(fresh: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
        _run(["mvn", "-q", "-B", "-f", str(pom), *options, *goal])

    return _made(CACHE / f"{name}-{_digest([pom])}", resolve)


@cache
def classpath(release: str) -> str:
    """The jars of that release and the judge, compiled against them on the first use."""
    sources = sorted((SOURCES / "judge").glob("*.java"))

    def compile_judge(fresh: Path) -> None:
        flags = ["-nowarn", "-proc:none", "-encoding", "UTF-8", "-Xlint:-deprecation", "-cp", f"{jars(release)}/*"]
        _run(["javac", *flags, "-d", str(fresh), *map(str, sources)])

    folder = CACHE / f"classes-{release}-{_digest([SOURCES / 'pom.xml', *sources])}"
    jars(release)  # resolved before the lock is taken again
    return f"{_made(folder, compile_judge)}:{jars(release)}/*"


def _made(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder; the first of several runs makes it, under another name until it is complete, and the others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = folder.with_name(f"{folder.name}.fresh")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            make(fresh)
            fresh.rename(folder)
    return folder


def _digest(files: list[Path]) -> str:
    content = hashlib.sha256()
    for file in files:
        content.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return content.hexdigest()[:12]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


class JudgeError(Exception):
    """The Java side refused: `type` is its exception class, `code` the response code or None."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['type']}: {error['message']}")
        self.type: str = error["type"]
        self.code: int | None = error.get("code")
        self.trace: str = error["trace"]


class Judge:
    """One JVM with Apache's clients of one release; requests may come from several threads. `options` go to Java."""

    def __init__(self, release: str, home: Path, *, heap: str = "512m", options: Sequence[str] = ()) -> None:
        logback = write_logback(home, "tools")
        self.release = release
        self._ids = itertools.count(1)
        self._open: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        command = [
            *("java", *SHORT_LIFE, f"-Xmx{heap}", "-Xss512k", "-XX:+UseSerialGC", *opened_modules()),
            *("-Djava.security.manager=allow", f"-Duser.home={home}"),
            *(f"-Drocketmq.home.dir={home}", f"-Drmq.logback.configurationFile={logback}"),
            *("-Djava.net.preferIPv4Stack=true", "-Drocketmq.client.logLevel=WARN"),
            # 5.x may miss its own first rebalance and then waits 20 s; 4.9 keeps its interval, so that it is
            # the broker's notification that makes members rebalance.
            *(["-Drocketmq.client.rebalance.waitInterval=2000"] if release.startswith("5") else []),
            *options,
            *("-cp", classpath(release), "judge.Judge"),
        ]
        self.process = Process(command, home / f"judge-{release}.err", cwd=home, talks=True)
        self._reader = threading.Thread(target=self._read, name=f"judge-{release}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def begin(self, op: str, **request: Any) -> Future[Any]:
        """Sends a request; its answer comes into the future, a refusal as a JudgeError."""
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._ids)
            self._open[number] = answer
            self.process.input.write(json.dumps({"id": number, "op": op, **request}) + "\n")
            self.process.input.flush()
        return answer

    def call(self, op: str, *, within: float = 120, **request: Any) -> Any:
        """The answer of one request; raises JudgeError, or TimeoutError after `within` seconds."""
        return self.begin(op, **request).result(within)

    def kill(self) -> None:
        """SIGKILL: its clients are gone without a word; `close` is still to be called."""
        self.process.kill()

    def close(self) -> None:
        """Ends the JVM; clients that still run are cut off."""
        self.process.input.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join(5)
        self.process.close_pipes()

    def _read(self) -> None:
        for line in self.process.output_lines:
            answer = json.loads(line)
            if "id" not in answer:
                continue
            future = self._open.pop(answer["id"])
            if "error" in answer:
                future.set_exception(JudgeError(answer["error"]))
            else:
                future.set_result(answer["ok"])
        for future in self._open.values():
            future.set_exception(ConnectionError("The judge's JVM has ended; see its .err file."))
