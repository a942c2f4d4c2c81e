"""`Workers`: reads of a log for requests, a few at a time; whoever waits waits for so long only.

A store that hangs holds its thread, never the server: the request is answered that it took too
long, and the thread counts against the others until it comes back.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.errors import StorageUnavailableError

_QUEUE_MS: Final = 5000  # how long a request waits for its turn
_LOOK_S: Final = 0.05  # how often it is asked whether the browser is still there
T = TypeVar("T")


class GoneError(Exception):
    """Nobody waits for the answer any more."""


class Workers:
    """At most `most` jobs at once. Threads may share it."""

    def __init__(self, most: int = 4, *, timeout_ms: int = 20_000) -> None:
        self._turns = threading.Semaphore(most)
        self._timeout_ms = timeout_ms

    def run(self, job: Callable[[Callable[[], bool]], T], gone: Callable[[], bool]) -> T:
        """Return what `job` returns; it is given what tells it to stop.

        Raises: GoneError; StorageUnavailableError: too many at once, no thread is to be had, or it
            took too long; and what the job raises.
        """
        until_ms = monotonic_ms() + _QUEUE_MS
        while not self._turns.acquire(timeout=_LOOK_S):
            if gone():
                raise GoneError
            if monotonic_ms() >= until_ms:
                raise StorageUnavailableError(
                    "too many are reading this log here at once: try again in a moment"
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
        except RuntimeError as error:  # no more threads; the turn is another one's
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
