"""The command that says what is wrong in a cluster."""

from __future__ import annotations

from eruca.admin.command import Job, Shown, command
from eruca.admin.diagnosis.doctor import diagnose
from eruca.admin.diagnosis.findings import Findings, in_short
from eruca.admin.errors import Status
from eruca.admin.posix import Operand, Option

_GROUP = Option("g", "group", "only this consumer group and its topics", kind="group")


@command(
    "doctor",
    Option("", "all", "a line for each group that nobody uses, not one for them all", takes_value=False),
    results=(Findings,),
    operand=Operand(_GROUP),
)
async def doctor(job: Job) -> Shown:
    """106, 206, 28, 26, 21, 305, 201; 203, 307, 202 and 29 for each group; ends with 1 if something is wrong."""
    result = await diagnose(job.admin, job.maybe("g"))
    job.status = Status.FAILED if result.items else Status.DONE

    def apache() -> None:
        for each in result.items if job.has("all") else in_short(result.items):
            job.line(str(each))
        if not result.items:
            job.line("nothing is wrong at those that answer" if result.errors else "nothing is wrong")

    return Shown(result, apache)
