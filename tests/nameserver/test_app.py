"""The command mqnamesrv as an operator starts and stops it."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eruca.nameserver.checks import fits, works_here
from eruca.nameserver.config import NamesrvConfig
from eruca.remoting.command_line import command_line
from eruca.remoting.log_files import LogFile
from eruca.remoting.settings import BadSetting

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": ":".join(str(ROOT / part) for part in ("protocol", "remoting", "nameserver"))}


def mqnamesrv(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "eruca.nameserver", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def test_it_says_that_it_runs_and_stops_when_told(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort=0\nrocketmqHome={tmp_path}\nserverWorkerThreads=8\n")
    with mqnamesrv("-c", str(conf), "-n", "127.0.0.1:9876") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "The Name Server boot success. serializeType=JSON\n"
        assert process.stdout.readline().startswith("listening on 0.0.0.0:")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "unknown key serverWorkerThreads" in errors
    assert "access control is off: everybody who reaches 0.0.0.0 may do everything" in errors


def test_it_prints_its_settings(tmp_path: Path) -> None:
    with mqnamesrv("-p") as process:
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "listenPort=9876" in output.splitlines()


def test_it_says_in_one_sentence_why_it_does_not_start(tmp_path: Path) -> None:
    damaged = tmp_path / "kv.json"
    damaged.write_text("{")
    cases = {
        ("--set", "listenPort=x"): (78, "--set: listenPort: 'x' is not allowed"),
        ("-c", str(tmp_path / "none.conf")): (78, "cannot read"),
        ("--set", f"kvConfigPath={damaged}"): (1, "cannot be read"),
        ("--set", "kvConfigPath=/proc/kvConfig.json"): (78, "cannot be written"),
        ("--set", f"rocketmqHome={tmp_path}", "--set", "bindAddress=192.0.2.1"): (1, "cannot listen on 192.0.2.1:9876"),
        ("--set", f"rocketmqHome={tmp_path}", "--set", "aclEnable=true"): (78, "there is none at"),
    }
    for arguments, (status, words) in cases.items():
        with mqnamesrv(*arguments) as process:
            output, errors = process.communicate(timeout=20)
        assert (process.returncode, output) == (status, ""), arguments
        (sentence,) = [line for line in errors.splitlines() if " daemon_starting " not in line]
        assert sentence.startswith("mqnamesrv: ") and words in sentence, errors


@pytest.mark.parametrize(
    ("arguments", "place", "sentence"),
    [
        (
            ("--set", "bindAddress=192.0.2.1"),
            "--set",
            "bindAddress does not work, the nameserver cannot listen on 192.0.2.",
        ),
        (
            ("--set", "kvConfigPath=/dev/null/kv.json"),
            "--set",
            "kvConfigPath names /dev/null, and /dev/null is no folder",
        ),
        (("--set", "kvConfigPath=/tmp"), "--set", "kvConfigPath names /tmp, and that is a folder: name a file"),
        (("--set", "kvConfigPath=kv.json"), "--set", "kvConfigPath: 'kv.json' is not allowed; write an absolute path"),
        (("--set", "configStorePath=~/x"), "--set", "configStorePath: '~/x' is not allowed; write an absolute path"),
        (("--set", "metricsPort=9876", "--set", "listenPort=9876"), "--set", "metricsPort 9876 is listenPort, too"),
        (("-n", "foo"), "-n", "namesrvAddr: 'foo' is not allowed; write host:port, several joined by ;"),
    ],
)
def test_a_check_says_what_is_wrong_with_its_place(
    tmp_path: Path, arguments: tuple[str, ...], place: str, sentence: str
) -> None:
    flags = ["--check", "--set", "listenPort=0", "--set", f"rocketmqHome={tmp_path}", *arguments]
    with pytest.raises(BadSetting) as refused:
        command_line(NamesrvConfig, "mqnamesrv", flags, {}, fits=fits, works_here=works_here)

    assert refused.value.faults[0].startswith(f"{place}: {sentence}")


def test_without_its_port_a_nameserver_that_runs_passes_the_check(tmp_path: Path) -> None:
    """As the page on operations says: its pages and its log are held too."""
    log = tmp_path / "namesrv.log"
    held = LogFile(log, 0, 0, lambda path, fault: None)
    with socket.create_server(("127.0.0.1", 0)) as port, socket.create_server(("127.0.0.1", 0)) as pages:
        conf = tmp_path / "namesrv.conf"
        conf.write_text(
            f"listenPort={port.getsockname()[1]}\nbindAddress=127.0.0.1\nmetricsPort={pages.getsockname()[1]}\n"
            f"logFile={log}\nrocketmqHome={tmp_path}\n"
        )
        flags = ["--check", "-c", str(conf)]
        try:
            with pytest.raises(BadSetting) as refused:
                command_line(NamesrvConfig, "mqnamesrv", flags, {}, fits=fits, works_here=works_here)
            faults = [fault.partition(":")[2] for fault in refused.value.faults]
            assert [fault.split()[1] for fault in faults] == ["listenPort", "metricsPort", "logFile"]

            flags += ["--set", "listenPort=0"]
            start = command_line(NamesrvConfig, "mqnamesrv", flags, {}, fits=fits, works_here=works_here)
            assert len(start.warnings) == 2 and "another process writes it" in start.warnings[1]
        finally:
            held.close()


def test_a_check_ends_with_0_or_78(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort=0\nrocketmqHome={tmp_path}\n")
    with mqnamesrv("--check", "-c", str(conf)) as process:
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, "mqnamesrv: the configuration has no fault\n", "")

    conf.write_text("listenPort=x\nkvConfigPath=~/kv\n")
    with mqnamesrv("--check", "-c", str(conf)) as process:
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (78, "")
    assert [line.removeprefix(f"mqnamesrv: {conf}:").partition(" ")[0] for line in errors.splitlines()] == ["1:", "2:"]
