"""`Jobs`: runs blocking work for requests in threads, a few at a time, with a time limit.

If a store hangs, it holds a thread, never the server: the request gets an error after a timeout,
and the thread counts as busy until it returns.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from sparklog.errors import StorageUnavailableError

QUEUE_MS: Final = 5000  # how long a request waits for its turn
T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str = "sparklog-ui-read") -> asyncio.Future[T]:
    """Start `work` in a daemon thread and return its result as a future, which nobody may cancel.

    asyncio's own threads are no daemons: one that hangs would keep the process alive.

    Raises:
        StorageUnavailableError: No thread can be started.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    result.add_done_callback(lambda done: done.exception())  # its request may have ended before

    def run() -> None:
        try:
            done = partial(result.set_result, work())
        except BaseException as error:  # noqa: BLE001 - it belongs to the request
            done = partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the server was closed
            loop.call_soon_threadsafe(done)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        raise StorageUnavailableError(f"{error}: try again in a moment") from error
    return result


class Jobs:
    """Runs at most `most` jobs at the same time. Belongs to one event loop."""

    def __init__(self, most: int = 4, *, timeout_ms: int = 20_000) -> None:
        self._turns = asyncio.Semaphore(most)
        self._timeout_ms = timeout_ms

    async def run(self, job: Callable[[Callable[[], bool]], T]) -> T:
        """Return the result of `job`, whose argument tells it when to stop.

        The job is told to stop after the timeout, and when the caller is cancelled.

        Raises:
            StorageUnavailableError: Too many jobs run already, no thread can be started, or the job
                takes too long. The errors of the job are raised too.
        """
        try:
            async with asyncio.timeout(QUEUE_MS / 1000):
                await self._turns.acquire()
        except TimeoutError:
            raise StorageUnavailableError(
                "too many requests read this log at once: try again in a moment"
            ) from None
        stopped = threading.Event()
        try:
            result = in_thread(lambda: job(stopped.is_set))
        except StorageUnavailableError:
            self._turns.release()
            raise
        result.add_done_callback(lambda _: self._turns.release())
        try:
            await asyncio.wait({result}, timeout=self._timeout_ms / 1000)
        finally:
            stopped.set()
        if not result.done():
            raise StorageUnavailableError(
                f"no answer within {self._timeout_ms // 1000} s: the disk or the store is slow, or "
                "doesn't answer; try again, or ask for less"
            )
        return result.result()
