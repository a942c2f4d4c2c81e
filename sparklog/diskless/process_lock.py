"""A lock for the threads of a process that is free in a forked child."""

import os
import threading

_forks = 0
"""Number of forks since the first process; distinguishes this process from its ancestors."""


def _count_in_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_in_child)  # runs before the child has a second thread


class ProcessLock:
    """A mutex that is free in a forked child. Not reentrant.

    The thread that holds a lock does not exist in the child, so the child would wait forever for an
    ordinary lock. A child that was forked inside a `with` block leaves the block without releasing
    any lock.
    """

    def __init__(self) -> None:
        self._locks = {_forks: threading.Lock()}  # of this process and its ancestors
        self._owner: tuple[int, int] | None = None

    def __enter__(self) -> None:
        if _forks not in self._locks:
            # Concurrent threads all get the lock that was stored first.
            self._locks.setdefault(_forks, threading.Lock())
        self._locks[_forks].acquire()
        self._owner = _forks, threading.get_ident()

    def __exit__(self, *exc: object) -> None:
        if self._owner == (_forks, threading.get_ident()):
            self._owner = None
            self._locks[_forks].release()
