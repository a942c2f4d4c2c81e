"""`Jobs`: runs the blocking work of requests in threads, a few at a time, with a time limit.

A store that does not respond blocks a thread, but never the server: the request gets an error
after the time limit, and the thread counts as busy until the store responds.
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
    """Start `work` in a daemon thread and return a future of the result. Do not cancel the future.

    Raises:
        StorageUnavailableError: No thread can be started.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()
    # If the request has ended, nothing else retrieves the exception, and asyncio would log that.
    result.add_done_callback(lambda done: done.exception())

    def run() -> None:
        try:
            done = partial(result.set_result, work())
        except BaseException as error:  # noqa: BLE001 - raised in the request
            done = partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the server was closed
            loop.call_soon_threadsafe(done)

    # Not asyncio.to_thread: its threads are no daemons, so one that waits for a store would keep
    # the process alive.
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        raise StorageUnavailableError(
            f"no thread can be started ({error}): try again in a moment"
        ) from error
    return result


class Jobs:
    """Runs at most `most` jobs at the same time. Must be used in one event loop only."""

    def __init__(self, most: int = 4, *, timeout_ms: int = 20_000) -> None:
        self._turns = asyncio.Semaphore(most)
        self._timeout_ms = timeout_ms

    async def run(self, job: Callable[[Callable[[], bool]], T]) -> T:
        """Run `job` in a thread and return the result.

        Args:
            job: The work. Its argument is a function that returns True when the job must stop:
                after the time limit, or when the caller was cancelled.

        Raises:
            StorageUnavailableError: Too many jobs are running, no thread can be started, or the job
                takes too long. Errors of the job are raised as they are.
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
        # Released when the thread ends, not when the request does: otherwise a store that doesn't
        # respond would accumulate threads without limit.
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
