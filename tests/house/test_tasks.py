"""Tasks of the daemons are started in one place, where they are watched; those that are not have their reason here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import parsed, product_modules

WATCHED = "eruca.remoting.tasks.Tasks.start"
SHORT = {
    "eruca.broker.services.failover.replicas.Replicas.greeted": "compares the end of a replica's log, then lets it in",
    "eruca.remoting.http._Exchange._answer": "a page that is made: it ends with its connection, also after an error",
    "eruca.remoting.listener.Listener._take": "an accepted connection, until its protocol has it",
    "eruca.remoting.listener.Listener._watch": "accepts where no loop watches sockets; after an error it starts again",
    "eruca.remoting.loop_thread.LoopThread.submit": "what a program or a test wants done, and waits for",
    "eruca.remoting.router.Router._start": "requests that wait: it ends with their replies, also after an error",
    "eruca.remoting.shared_tasks.SharedTasks.start": "work such as an attempt to connect: its callers wait for it",
    "eruca.remoting.tasks.unless": "the start of a daemon: its caller waits for it",
}
"""The functions that start a task which ends by itself, and is not watched."""

_DAEMONS = ("eruca.broker", "eruca.nameserver", "eruca.remoting")
_STARTS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}
_KINDS = {"Task", "TaskGroup", "Runner"}
"""Classes that start tasks where they are called; as types of values they stand everywhere."""


def _starts(node: ast.AST, place: str) -> Iterator[str]:
    """The functions within ``node``, which is called ``place``, that start tasks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _starts(child, f"{place}.{child.name}")
            continue
        if _name(child) in _STARTS or (isinstance(child, ast.Call) and _name(child.func) in _KINDS):
            yield place
        yield from _starts(child, place)


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _of_the_daemons() -> Iterator[str]:
    for file in product_modules():
        module = ".".join(file.with_suffix("").parts[1:]).removesuffix(".__init__")
        if module.startswith(_DAEMONS):
            yield from _starts(parsed(file), module)


@pytest.mark.usefixtures("trees")
def test_the_tasks_of_daemons_are_watched() -> None:
    found = set(_of_the_daemons()) - {WATCHED, "eruca.remoting.loop.run"}

    assert found - set(SHORT) == set(), "start it by Tasks.start; or, if it ends by itself, give the reason here"
    assert set(SHORT) - found == set(), "these start none any more"


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(work())",
        "self._loop.create_task(work(), name='x')",
        "start = asyncio.get_running_loop().create_task",
        "task = asyncio.ensure_future(work())",
        "asyncio.Task(work())",
        "async with asyncio.TaskGroup() as group: pass",
        "from asyncio import create_task; create_task(work())",
    ],
)
def test_a_task_is_found(line: str) -> None:
    module = ast.parse(f"class Part:\n    async def start(self):\n        {line}\n")
    assert set(_starts(module, "eruca.broker.part")) == {"eruca.broker.part.Part.start"}


def test_a_type_is_none() -> None:
    text = "class Part:\n    def start(self, task: asyncio.Task[None]) -> asyncio.Task[None]:\n        return task\n"
    assert list(_starts(ast.parse(text), "part")) == []
