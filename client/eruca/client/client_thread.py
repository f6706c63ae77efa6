"""The thread of this process whose event loop runs all blocking clients.

Owns the one thread of the process: the first client starts it; it ends with the interpreter, after what the program
itself registered with ``atexit``. A forked child does not have it: clients made before the fork raise ForkedClient.
"""

from __future__ import annotations

import atexit

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


_thread = PerProcess(lambda: LoopThread("eruca-client", _error))


def client_thread() -> LoopThread:
    """The thread of this process."""
    return _thread.get()


@atexit.register
def _halt() -> None:
    """Registered by the import: what a program registers later, such as its own ``stop``, runs before it."""
    thread = _thread.made
    if thread is not None:
        thread.halt(_HALT_SECONDS)
