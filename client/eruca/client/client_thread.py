"""The thread of this process whose event loop runs all blocking clients.

Owns the one thread of the process: the first client starts it; it ends with the interpreter, after what the program
itself registered with ``atexit``. A forked child does not have it: clients made before the fork raise ForkedClient. A
blocking call where an event loop runs is a RuntimeWarning and no error: notebooks have such loops, and wait on purpose.
"""

from __future__ import annotations

import atexit
import sys
import warnings

from eruca.client.errors import ForkedClient, StateError
from eruca.remoting.loop_thread import LoopThread, PerProcess, Unusable

_HALT_SECONDS = 1.0


def _error(reason: Unusable) -> StateError:
    match reason:
        case Unusable.FORKED:
            return ForkedClient(
                "This client was made before a fork: its thread and connections belong to the parent process. "
                "Make the client in the process that uses it (in the worker, not in the module that forks)."
            )
        case Unusable.ENDED:
            return StateError(
                "The interpreter is ending, and this client with it: use it before, and stop it by `with`."
            )
        case Unusable.OWN_THREAD:
            return StateError(
                "A blocking client was called in its own event loop, which would wait for itself: use the "
                "asynchronous client of eruca.client in coroutines."
            )


def _warn_of_loop() -> None:
    """Point at the line outside of Eruca that made its event loop wait; Python shows each such line once."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith("eruca."):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        "A blocking client was called where an event loop runs, which stands still until the call ends: use the "
        "asynchronous client of eruca.client in coroutines, or call by `await asyncio.to_thread(...)`.",
        RuntimeWarning,
        stacklevel=level,
    )


_thread = PerProcess(lambda: LoopThread("eruca-client", _error, _warn_of_loop))


def client_thread() -> LoopThread:
    """The thread of this process."""
    return _thread.get()


@atexit.register
def _halt() -> None:
    """Registered by the import: what a program registers later, such as its own ``stop``, runs before it."""
    thread = _thread.made
    if thread is not None:
        thread.halt(_HALT_SECONDS)
