"""Commands about files of a cluster: write what it has, compare with it, make it so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from eruca.admin.client import Admin
from eruca.admin.command import Job, Shown, agree_to_deletion, command
from eruca.admin.commands.topic import put_order
from eruca.admin.errors import AdminError, Status
from eruca.admin.files import content
from eruca.admin.lookups import ask_each, create_topic, masters_in
from eruca.admin.posix import Option
from eruca.admin.results import declared as found
from eruca.admin.results.answer import indented
from eruca.admin.results.broker_settings import text_of
from eruca.admin.results.declared import ORDER_TOPIC_CONFIG, Change, Difference, Parts
from eruca.admin.results.users import GroupInUse, users_of_group, users_of_topic
from eruca.admin.text import counted
from eruca.protocol import api, properties
from eruca.protocol.headers import routes, topics
from eruca.protocol.names import dead_letter_topic, retry_topic

_CLUSTER = Option("c", "clusterName", "the cluster; default: the only one", kind="cluster")
_FILE = Option("f", "file", "the file: .yaml, .json or .toml", required=True, kind="file")
_PRUNE = Option("", "prune", "delete what is not in the file, too", takes_value=False)


@command(
    "export",
    _CLUSTER,
    results=(found.Declared,),
)
async def export(job: Job) -> Shown:
    """21, 305, 201 and 26 at each master, 219; as JSON, if no other form is asked for."""
    result = await found.declared_state(job.admin, await masters_in(job.admin, job.maybe("c")))
    return Shown(result, lambda: job.line(indented(result)))


@command("diff", _CLUSTER, _FILE, _PRUNE, results=(Difference,))
async def diff(job: Job) -> Shown:
    """As export; changes nothing, and ends with 3 if there is a difference."""
    _, _, result = await _compared(job, await masters_in(job.admin, job.maybe("c")))
    if result.items:
        job.status = Status.WOULD_CHANGE

    def apache() -> None:
        for each in result.items:
            job.line(str(each))

    return Shown(result, apache)


@command(
    "apply",
    _CLUSTER,
    _FILE,
    _PRUNE,
    Option("", "dry-run", "change nothing; end with 3 if there is a difference", takes_value=False),
    Option("", "ask", "ask before what is in use goes; without a terminal, refuse", takes_value=False),
    Option("", "yes", "ask nothing", takes_value=False),
    results=(Difference, found.Applied),
)
async def apply(job: Job) -> AsyncIterator[Shown]:
    """As export; then 17, 200, 100, 25 for each change, and 215, 216, 207, 102 for what goes."""
    masters = await masters_in(job.admin, job.maybe("c"))
    wanted, old, result = await _compared(job, masters)
    text = "".join(f"{each}\n" for each in result.items) or "nothing is to be changed\n"
    if not result.items or job.has("dry-run"):
        job.status = Status.WOULD_CHANGE if result.items else Status.DONE
        yield Shown(result, partial(job.write, text))
        return
    yield Shown(None, partial(job.write, text))
    if job.form != "apache" and job.asks_a_person:
        job.say(text.rstrip())
    question = f"Make {counted(len(result.items), 'change')}?"
    users = await _users(job.admin, result)
    if users:
        agree_to_deletion(job, users, question)
    elif job.agreed(question) is False:
        raise AdminError("nothing was changed")
    left = set(wanted) | set(old)
    done = 0
    for each in result.items:
        place = (each.kind, each.name, each.broker)
        try:
            if each.action == "delete":
                left.discard(place)
                last = not any(kind == "topic" and name == each.name for kind, name, _ in left)
                await _delete(job.admin, each, masters, everywhere=last)
            else:
                await _put(job.admin, each, {**old, **wanted}, masters)
            made = True
        except AdminError as error:
            made = False
            job.report(f"{each}: {error}", Status.PARTIAL)
        done += made
        yield Shown(found.applied(each, done=made), lambda: None)
    yield Shown(None, partial(job.line, f"{done} of {len(result.items)} changes made"))


async def _compared(job: Job, masters: dict[str, str]) -> tuple[Parts, Parts, Difference]:
    """What the file says, what the cluster has, and the difference."""
    path = job.text("f")
    wanted = found.parts_of(found.read(content(path), path), masters)
    old = found.parts_of(await found.declared_state(job.admin, masters, defaults=True), masters)
    return wanted, old, found.difference(wanted, old, prune=job.has("prune"))


async def _users(admin: Admin, result: Difference) -> list[GroupInUse]:
    """Who uses what is to be deleted."""
    gone = dict.fromkeys((each.kind, each.name) for each in result.items if each.action == "delete")
    asks = {
        f"{kind} {name}": users_of_topic(admin, name) if kind == "topic" else users_of_group(admin, name)
        for kind, name in gone
        if kind != "order"
    }
    users = [user for answer in (await ask_each(asks)).strict().values() for user in answer.items]
    return list({user.group: user for user in users}.values())


async def _put(admin: Admin, change: Change, parts: Parts, masters: dict[str, str]) -> None:
    if change.kind == "setting":
        new = change.fields[0].new
        body = properties.write({change.name: "" if new is None else text_of(new)}).encode()
        await admin.call(masters[str(change.broker)], api.UPDATE_BROKER_CONFIG, None, body)
        return
    part = parts[change.kind, change.name, change.broker]
    if isinstance(part, str):
        await put_order(admin, change.name, part)
    elif isinstance(part, found.DeclaredTopic):
        await create_topic(admin, masters[str(change.broker)], part.config(order=("order", change.name, None) in parts))
    elif isinstance(part, found.DeclaredGroup):
        body = part.config().encode()
        await admin.call(masters[str(change.broker)], api.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)


async def _delete(admin: Admin, change: Change, masters: dict[str, str], *, everywhere: bool) -> None:
    """A group goes with its retry and dead letter topics there; its offsets stay, as with ``deleteSubGroup``."""
    if change.broker is None:
        key = routes.KVConfigKey(namespace=ORDER_TOPIC_CONFIG, key=change.name)
        await admin.call_nameservers(api.DELETE_KV_CONFIG, key)
        return
    names = [change.name]
    if change.kind == "group":
        request = topics.DeleteSubscriptionGroup(group_name=change.name, remove_offset=False)
        await admin.call(masters[change.broker], api.DELETE_SUBSCRIPTIONGROUP, request)
        names = [retry_topic(change.name), dead_letter_topic(change.name)]
    for name in names:
        await admin.call(masters[change.broker], api.DELETE_TOPIC_IN_BROKER, topics.OfTopic(topic=name))
    if change.kind == "topic" and everywhere:
        await admin.call_nameservers(api.DELETE_TOPIC_IN_NAMESRV, topics.DeleteTopicInNamesrv(topic=change.name))
