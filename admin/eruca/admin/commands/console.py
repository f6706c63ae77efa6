"""The command that serves the web console."""

from __future__ import annotations

from eruca.admin.command import Job, command
from eruca.admin.commands import find
from eruca.admin.errors import AdminError
from eruca.admin.posix import Option

LISTEN = "127.0.0.1:8088"


@command(
    "console",
    Option("", "listen", f"host:port; default {LISTEN}, port 0: a free one"),
    Option("", "write", "allow changes; without it the console only reads", takes_value=False),
    Option("", "tls-cert", "the certificate (PEM), without which only this machine may ask", kind="file"),
    Option("", "tls-key", "its key (PEM)", kind="file"),
    Option("", "name", "names by which browsers reach it, with commas"),
)
async def console(job: Job) -> None:
    """those of the pages that are opened, every 2 seconds; and with --write, of what is changed there."""
    try:
        from eruca.admin.console.server import listener, serve
    except ModuleNotFoundError as error:
        raise AdminError(
            f"the console needs {error.name}, which is not installed: pip install 'eruca[console]'"
        ) from None
    place = listener(job.text("listen", LISTEN), job.text("name"), job.text("tls-cert"), job.text("tls-key"))

    def ready(address: str) -> None:
        job.line(address)
        job.finish()
        job.say(
            "open this address in a browser; Ctrl-C ends the console" + ("" if job.has("write") else " (read only)")
        )

    await serve(
        job.admin,
        place,
        write=job.has("write"),
        commands=find,
        context=job.context,
        environment=job.environment,
        say=job.say,
        ready=ready,
    )
