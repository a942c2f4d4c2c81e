"""A lock for the threads of one process, which a forked child gets anew."""

import os
import threading

_forks = 0
"""How many forks lie between this process and the first one: tells it from those it comes of."""


def _count_in_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_in_child)  # runs before the child has a second thread


class ProcessLock:
    """A mutex; not reentrant. In a forked child it is free: who held it isn't there.

    A child that was forked within its `with` leaves that without releasing anything.
    """

    def __init__(self) -> None:
        self._locks = {_forks: threading.Lock()}  # of this process, and of those it comes of
        self._owner: tuple[int, int] | None = None

    def __enter__(self) -> None:
        if _forks not in self._locks:
            # Of threads that come here at once all get the one that was put there first.
            self._locks.setdefault(_forks, threading.Lock())
        self._locks[_forks].acquire()
        self._owner = _forks, threading.get_ident()

    def __exit__(self, *exc: object) -> None:
        if self._owner == (_forks, threading.get_ident()):
            self._owner = None
            self._locks[_forks].release()
