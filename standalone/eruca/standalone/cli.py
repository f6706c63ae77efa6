"""The command ``eruca``: a cluster in one process, an offline check of a store, pipelines, and the demonstration."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from eruca.broker.store import StoreConfig

from eruca.remoting.version import version

_VERSION = click.version_option(version(), prog_name="eruca", message="%(prog)s %(version)s")


def _say_version(command: click.Command) -> click.Command:
    """The command with ``--version``, which all below it have, too."""
    _VERSION(command)
    for each in getattr(command, "commands", {}).values():
        _say_version(each)
    return command


@functools.cache
def _pipeline() -> click.Command:
    try:
        from eruca.standalone.pipeline.commands import pipeline
    except ModuleNotFoundError as error:
        if error.name != "eruca.spark_connector":
            raise
        return _say_version(_no_pipeline)
    return _say_version(pipeline)


@click.command("pipeline", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("words", nargs=-1)
def _no_pipeline(words: tuple[str, ...]) -> NoReturn:
    """Pipelines with Spark: install eruca-spark[spark] first."""
    sys.exit("eruca pipeline: eruca.spark_connector is missing: run `pip install 'eruca-spark[spark]'`.")


class Commands(click.Group):
    """The commands; ``pipeline`` is imported on first use, as it needs Spark's packages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted([*super().list_commands(ctx), "pipeline"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        return super().get_command(ctx, cmd_name) if cmd_name != "pipeline" else _pipeline()


@click.group(cls=Commands)
def main() -> None:
    """Eruca, a message queue that speaks the Apache RocketMQ 4.9 protocol."""


def _port(*, of_broker: bool = False) -> Callable[[click.Context, click.Parameter, str], int]:
    """What makes a port to listen on of an option's value; one of a broker leaves room for its neighbours."""

    def made(context: click.Context, option: click.Parameter, value: str) -> int:
        from eruca.broker.services.ports import room_fault
        from eruca.remoting.addresses import port_number

        try:
            port = port_number(value, 0)
        except ValueError as fault:
            raise click.BadParameter(f"{value} is none: {fault}.", context, option) from None
        if of_broker and (no_room := room_fault(port)) is not None:
            raise click.BadParameter(f"{no_room}.", context, option)
        return port

    return made


@main.command()
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of its files; the store is in store/. [./eruca-store]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on, which clients get too.")
@click.option(
    "--port",
    type=str,
    callback=_port(),
    metavar="PORT",
    default="9876",
    show_default=True,
    help="The nameserver's port; 0 takes a free one.",
)
@click.option(
    "--broker-port",
    type=str,
    callback=_port(of_broker=True),
    metavar="PORT",
    default="10911",
    show_default=True,
    help="The broker's port; 0 takes a free one.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set any key of broker.conf or namesrv.conf; may be repeated. Variables ERUCA_... count, too.",
)
def standalone(store: Path | None, host: str, port: int, broker_port: int, assignments: tuple[str, ...]) -> None:
    """Run a nameserver and a broker in one process, for development.

    The broker evaluates SQL92 filters (enablePropertyFilter=true).
    """
    from eruca.broker.state.state_file import StateUnreadable
    from eruca.broker.store import StoreDamaged, StoreLocked, StoreTooNew
    from eruca.remoting import run
    from eruca.remoting.descriptors import raise_limit
    from eruca.remoting.files import NoAccess, cannot_use
    from eruca.remoting.life_lines import log as start_log
    from eruca.remoting.listener import PortTaken
    from eruca.remoting.logs import log_to_stderr
    from eruca.remoting.sources import assignment
    from eruca.standalone.cluster import serve
    from eruca.standalone.settings import cluster_settings

    with log_to_stderr() as say:
        raise_limit()
        settings = cluster_settings([assignment(each) for each in assignments], environment=os.environ)
        say.settle(settings.broker.log, "broker")
        for warning in settings.warnings:
            start_log.warning("configuration", warning=warning)
        folder = (store or Path("eruca-store")).absolute()
        try:
            run(serve(folder, host, port, broker_port, settings, say))
        except (NoAccess, PortTaken, StateUnreadable, StoreDamaged, StoreLocked, StoreTooNew) as error:
            sys.exit(f"eruca standalone: {error}")
        except OSError as error:
            sys.exit(f"eruca standalone: cannot start: {cannot_use(error, folder)}")


@main.command("run")
@click.argument("target", metavar="MODULE:APP")
@click.option("--nameserver", "-n", metavar="ADDRESSES", help="The nameservers, in place of the application's own.")
@click.option("--workers", "-w", default=1, show_default=True, type=click.IntRange(1), help="How many processes.")
@click.option("--reload", is_flag=True, help="Start again when a Python file below the folder changes.")
@click.option(
    "--folder",
    default=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where modules are looked for first, and what --reload watches. [this folder]",
)
@click.option(
    "--stop-timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds that a worker has to stop in order.",
)
@click.option("--log-level", default="INFO", show_default=True, help="Of the log, which goes to standard error.")
@click.option("--supervised", is_flag=True, hidden=True)
def run_application(
    target: str,
    nameserver: str | None,
    workers: int,
    reload: bool,
    folder: Path,
    stop_timeout: float,
    log_level: str,
    supervised: bool,
) -> None:
    """Run an application (eruca.client.App), such as orders:app, until SIGTERM or Ctrl-C.

    With several workers a process that ends is replaced, and SIGHUP replaces them all. Exits with 0 after a stop in
    order, with 2 when the application cannot be loaded, else with 1.
    """
    from eruca.standalone.workers.command import Run, log_to_stderr

    try:
        log_to_stderr(log_level)
    except ValueError:
        raise click.BadParameter(f"{log_level!r} is no level of logging", param_hint="--log-level") from None
    run = Run(target, folder.resolve(), nameserver)
    sys.exit(run.supervise(workers, reload, stop_timeout, log_level) if workers > 1 or reload else run.here(supervised))


@main.command()
@click.argument("url", default="http://127.0.0.1:5557/readyz")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait for the answer.")
def health(url: str, timeout: float) -> None:
    """Ask a daemon whether it is ready: exits with 0, or with 1 and the reasons.

    URL is its page /readyz, by default that of a broker on this machine; nameservers have port 5558.
    """
    from eruca.standalone.health import NotReady, ask

    try:
        click.echo(ask(url, timeout))
    except NotReady as reason:
        sys.exit(f"eruca health: {reason}")


@main.command()
@click.argument("archive", type=click.Path(path_type=Path), metavar="FILE.tar.gz")
@click.option("-c", "conf", metavar="FILE", help="The broker.conf of the broker.")
@click.option("-n", "nameserver", metavar="ADDRESSES", help="The nameservers. [namesrvAddr of broker.conf]")
@click.option("--pages", metavar="URL", help="Its health and metrics. [http://127.0.0.1 and metricsPort]")
def bundle(archive: Path, conf: str | None, nameserver: str | None, pages: str | None) -> None:
    """Collect what a report of a fault needs: versions, settings without secrets, pages, the end of the log.

    Run it on the machine of the broker, as its user. It holds no message and no secret; look through it all the same.
    """
    from eruca.remoting.files import cannot_use
    from eruca.remoting.settings import BadSetting
    from eruca.standalone.bundle import Bundle, write_bundle

    try:
        for line in write_bundle(Bundle(conf, nameserver, pages), archive):
            click.echo(line)
    except BadSetting as fault:
        sys.exit(f"eruca bundle: {fault}")
    except OSError as fault:
        sys.exit(f"eruca bundle: {cannot_use(fault, archive)}")
    click.echo(f"written: {archive}")


@main.group()
def store() -> None:
    """Maintain a store: check it, back it up, restore it, cut its log off."""


CONF = click.option(
    "-c", "conf", metavar="FILE", help="The broker.conf of the store, if it sets index sizes or storePathCommitLog."
)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def _store_config(command: str, folder: Path, conf: str | None) -> StoreConfig:
    """The configuration of the store in a folder; ends the process with a sentence where a file has faults."""
    from eruca.broker.config import BrokerConfig, store_config
    from eruca.remoting.command_line import command_line
    from eruca.remoting.settings import BadSetting

    try:
        settings = command_line(BrokerConfig, f"eruca store {command}", ["-c", conf] if conf else []).config.store
        settings.store_path_root_dir = str(folder)
        return store_config(settings)
    except (BadSetting, ValueError) as error:
        sys.exit(f"eruca store {command}: {error}")


@store.command()
@click.argument("folder", type=FOLDER, metavar="STORE")
@click.argument("into", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@CONF
def backup(folder: Path, into: Path, conf: str | None) -> None:
    """Back up a store into a new folder in DIR, while its broker runs or not.

    Full files of the commit log become hard links where DIR is on the same disk. What an earlier backup in DIR has is
    not stored a second time.
    """
    from eruca.broker.store import StoreTooNew
    from eruca.broker.store.backup import back_up
    from eruca.broker.store.backup_files import BackupFault
    from eruca.remoting.clock import now_ms
    from eruca.remoting.files import cannot_use

    try:
        files, manifest = back_up(_store_config("backup", folder, conf), into, now_ms())
    except (BackupFault, StoreTooNew) as error:
        sys.exit(f"eruca store backup: {error}")
    except OSError as error:
        sys.exit(f"eruca store backup: {cannot_use(error, into)}")
    click.echo(
        f"{files.folder}: commit log from {manifest.begin_offset:,} to {manifest.end_offset:,}; "
        f"{files.linked} files linked, {files.unchanged} shared with the backup before, "
        f"{files.copied} copied ({files.copied_bytes:,} bytes)"
    )


@store.command()
@click.argument("from_", type=FOLDER, metavar="DIR")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="STORE")
@click.option("--name", metavar="NAME", help="The backup in DIR; without it the newest one.")
@CONF
def restore(from_: Path, folder: Path, name: str | None, conf: str | None) -> None:
    """Restore a backup in DIR into an empty folder, and verify it; exits with 1 if anything is damaged."""
    from eruca.broker.store.backup import restore as restored
    from eruca.broker.store.backup_files import BackupFault
    from eruca.remoting.files import cannot_use

    config = _store_config("restore", folder, conf)
    try:
        manifest = restored(from_, config, name)
    except BackupFault as error:
        sys.exit(f"eruca store restore: {error}")
    except OSError as error:
        sys.exit(f"eruca store restore: {cannot_use(error, folder)}")
    click.echo(f"restored {len(manifest.files)} files of the backup made at {manifest.made}")
    _verify("restore", config)


@store.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@CONF
def verify(folder: Path, conf: str | None) -> None:
    """Check a store offline and print what is damaged; exits with 1 if anything is."""
    _verify("verify", _store_config("verify", folder, conf))


@store.command()
@click.argument("folder", type=FOLDER, metavar="STORE")
@click.argument("end", type=click.IntRange(min=0), metavar="OFFSET")
@CONF
def cut(folder: Path, end: int, conf: str | None) -> None:
    """Cut a store's log off at OFFSET, where a record ends, so that it can follow another master.

    Messages from there on go, with all that points to them; a copy of the log's part stays in rolledback/. Committed
    offsets behind the ends of queues are set back to them. The broker must be stopped.
    """
    from eruca.broker.store import FileSystem, Store, StoreDamaged, StoreLocked, StoreTooNew
    from eruca.broker.store.cut import CutRefused, intend_cut
    from eruca.remoting.files import cannot_use

    config = _store_config("cut", folder, conf)
    try:
        cut_off = intend_cut(config, end, FileSystem())
        if cut_off is None:
            click.echo(f"the log ends at {end:,} already")
            return
        Store(config).finish_cut()
    except (CutRefused, StoreDamaged, StoreLocked, StoreTooNew) as error:
        sys.exit(f"eruca store cut: {error}")
    except OSError as error:
        sys.exit(f"eruca store cut: {cannot_use(error, folder)}")
    click.echo(f"the log ends at {end:,}, before at {cut_off.former_end:,}; what was cut off is in {cut_off.kept}")


def _verify(command: str, config: StoreConfig) -> NoReturn:
    from eruca.broker.store import StoreLocked, StoreTooNew
    from eruca.broker.store.verify import verify as check

    folder = config.store_path_root_dir
    try:
        result = check(folder, config)
    except (StoreLocked, StoreTooNew, FileNotFoundError) as error:
        sys.exit(f"eruca store {command}: {error}")
    click.echo(
        f"{result.records:,} records in {result.log_bytes:,} bytes of commit log, "
        f"{result.units:,} units in {result.queues:,} consume queues, {result.index_entries:,} index entries"
    )
    for note in result.notes:
        click.echo(f"note: {note}")
    for finding in result.findings:
        click.echo(f"damaged: {finding.path.relative_to(folder)}: {finding.sentence}")
    click.echo("The store is sound." if result.sound else f"{len(result.findings)} findings.")
    sys.exit(0 if result.sound else 1)


@main.group()
def tls() -> None:
    """Certificates for encrypted connections."""


@tls.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name or an address of the servers; repeat it.")
@click.option("--days", default=397, show_default=True, type=click.IntRange(1, 3650), help="How long they are valid.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Encrypt the keys of servers and clients with the first line of this file.",
)
def init(folder: Path, hosts: tuple[str, ...], days: int, password_file: Path | None) -> None:
    """Make an authority of your own in DIR, and issue certificates for servers and clients.

    An authority that is in DIR already goes on, and the certificates are issued again: that renews them.
    """
    from eruca.remoting.files import cannot_use

    try:
        from eruca.standalone.own_authority import BadAuthority
        from eruca.standalone.own_authority import init as write
    except ModuleNotFoundError as missing:
        sys.exit(f"eruca tls init: the package {missing.name} is missing: pip install 'eruca[tls]'")
    try:
        password = password_file.read_text().partition("\n")[0] if password_file is not None else None
        made = write(folder, hosts, days=days, password=password)
    except (BadAuthority, ValueError) as error:
        sys.exit(f"eruca tls init: {error}")
    except OSError as error:
        sys.exit(f"eruca tls init: {cannot_use(error, folder)}")
    authority = "a new authority" if made.new_authority else "the authority"
    server = (folder / "server").absolute()
    click.echo(f"{authority} in {folder}: ca.pem (clients trust it), ca.key (keep it elsewhere)")
    click.echo(f"server.pem and server.key for {', '.join(made.hosts)}, client.pem and client.key, for {days} days")
    click.echo(f"servers: tls.server.certPath={server}.pem, tls.server.keyPath={server}.key")


@main.command()
def demo() -> None:
    """Run send, consume, rewind and a Spark read on real processes."""
    from eruca.standalone.demo.steps import main as run_demo

    sys.exit(run_demo())


_say_version(main)

if __name__ == "__main__":
    main()
