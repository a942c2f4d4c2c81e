"""A lock for the threads of one process, which a forked child gets anew."""

import os
import threading
from types import TracebackType


class ProcessLock:
    """A mutex; not reentrant. In a forked child it is free: who held it isn't there."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
