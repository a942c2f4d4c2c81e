"""`Workers`: reads a log for requests, a few at a time; no request waits forever.

If a store hangs, it holds a thread, never the server: the request gets an error after a timeout,
and the thread counts as busy until it returns.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.errors import StorageUnavailableError

QUEUE_MS: Final = 5000  # how long a request waits for its turn
_LOOK_S: Final = 0.05  # how often the connection is checked
T = TypeVar("T")


class GoneError(Exception):
    """The browser closed the connection."""


class Workers:
    """At most `most` jobs at once. Threads may share it."""

    def __init__(self, most: int = 4, *, timeout_ms: int = 20_000) -> None:
        self._turns = threading.Semaphore(most)
        self._timeout_ms = timeout_ms

    def run(self, job: Callable[[Callable[[], bool]], T], gone: Callable[[], bool]) -> T:
        """Return the result of `job`, whose argument tells it when to stop.

        Raises: GoneError; StorageUnavailableError: too many jobs at once, no thread could be
        started, or it took too long; and the errors of the job.
        """
        until_ms = monotonic_ms() + QUEUE_MS
        while not self._turns.acquire(timeout=_LOOK_S):
            if gone():
                raise GoneError
            if monotonic_ms() >= until_ms:
                raise StorageUnavailableError(
                    "too many requests read this log at once: try again in a moment"
                )
        ended, stopped = threading.Event(), threading.Event()
        box: list[Any] = [None, None]

        def work() -> None:
            try:
                box[0] = job(stopped.is_set)
            except BaseException as error:  # noqa: BLE001 - it is the waiting thread's
                box[1] = error
            finally:
                self._turns.release()
                ended.set()

        try:
            threading.Thread(target=work, name="sparklog-ui-read", daemon=True).start()
        except RuntimeError as error:  # no more threads; the turn is given back
            self._turns.release()
            raise StorageUnavailableError(f"{error}: try again in a moment") from error
        self._wait(ended, stopped, gone)
        if box[1] is not None:
            raise box[1]
        found: T = box[0]
        return found

    def _wait(
        self, ended: threading.Event, stopped: threading.Event, gone: Callable[[], bool]
    ) -> None:
        until_ms = monotonic_ms() + self._timeout_ms
        while not ended.wait(_LOOK_S):
            if gone():
                stopped.set()
                raise GoneError
            if monotonic_ms() >= until_ms:
                stopped.set()
                raise StorageUnavailableError(
                    f"no answer within {self._timeout_ms // 1000} s: the disk or the store is "
                    "slow, or doesn't answer; try again, or ask for less"
                )
