"""Work for requests: in threads, a few at once, each made once, and nobody waits forever."""

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparklog.errors import StorageUnavailableError
from sparklog.ui import jobs as module
from sparklog.ui.jobs import Jobs
from sparklog.ui.result_cache import CachedResult
from tests.waiting import until

Stopped = Callable[[], bool]


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes, a request gets its turn."""
    monkeypatch.setattr(module, "QUEUE_MS", 240_000)


def run(what: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine in a thread: a browser that is open refuses event loops in this one."""
    ended: list[Any] = []

    async def main() -> Any:
        return await what()

    def work() -> None:
        try:
            ended.append(asyncio.run(main()))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


async def holds(condition: Callable[[], bool]) -> None:
    """Wait while the event loop runs."""
    ends = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)


def test_what_hangs_is_reported_and_counts_as_busy_until_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go = threading.Event()

    def hangs(stopped: Stopped) -> None:
        go.wait(240)
        raise StorageUnavailableError("too late for anybody to hear it")

    async def main() -> None:
        jobs = Jobs(1, timeout_ms=200)
        with pytest.raises(StorageUnavailableError, match="try again, or ask for less"):
            await jobs.run(hangs)
        waiting = asyncio.create_task(jobs.run(lambda stopped: 1))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        go.set()
        assert await waiting == 1

    run(main)
    gc.collect()
    assert caplog.text == ""


def test_a_request_that_gets_no_turn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_MS", 50)
    go = threading.Event()

    async def main() -> None:
        jobs = Jobs(1, timeout_ms=240_000)
        first = asyncio.create_task(jobs.run(lambda stopped: go.wait(240)))
        await asyncio.sleep(0)
        with pytest.raises(StorageUnavailableError, match="too many requests read this log"):
            await jobs.run(lambda stopped: 1)
        go.set()
        assert await first

    run(main)


def test_a_turn_without_a_thread_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is out of threads for a moment must not close the pages for good."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        jobs = Jobs(1, timeout_ms=240_000)
        with monkeypatch.context() as without_threads:
            without_threads.setattr(threading.Thread, "start", start)
            with pytest.raises(StorageUnavailableError, match="try again"):
                await jobs.run(lambda stopped: 1)
        assert await jobs.run(lambda stopped: 1) == 1

    run(main)


def test_only_so_many_read_at_once() -> None:
    running, most, changed = [0], [0], threading.Condition()

    def job(stopped: Stopped) -> None:
        with changed:
            running[0] += 1
            most[0] = max(most[0], running[0])
            changed.notify_all()
            changed.wait_for(lambda: most[0] >= 3, timeout=60)
        time.sleep(0.02)
        with changed:
            running[0] -= 1

    async def main() -> None:
        jobs = Jobs(3, timeout_ms=240_000)
        await asyncio.gather(*(jobs.run(job) for _ in range(12)))

    run(main)
    assert most[0] == 3


def test_a_cancelled_request_ends_its_job() -> None:
    told = threading.Event()

    def job(stopped: Stopped) -> None:
        until(stopped)
        told.set()

    async def main() -> None:
        request = asyncio.create_task(Jobs(1, timeout_ms=240_000).run(job))
        await asyncio.sleep(0.05)
        assert not told.is_set()
        request.cancel()
        await holds(told.is_set)

    run(main)


def test_a_result_that_hangs_holds_one_thread() -> None:
    go, made = threading.Event(), []

    def make() -> int:
        made.append(1)
        if len(made) > 1:
            go.wait(240)
        return len(made)

    async def main() -> None:
        cached = CachedResult(make, fresh_ms=0, patience_s=0.1)
        assert (await cached.get())[0] == 1
        await holds(lambda: cached.peek() == 1 and len(made) == 2)
        found = await asyncio.gather(*(cached.get() for _ in range(5)))
        assert [result for result, _ in found] == [1] * 5
        assert len(made) == 2
        go.set()

    run(main)


def test_a_first_result_that_takes_long_is_there_later() -> None:
    go = threading.Event()

    async def main() -> None:
        cached = CachedResult(lambda: go.wait(240), fresh_ms=0, patience_s=0.05)
        for _ in range(2):
            with pytest.raises(StorageUnavailableError, match="still being made"):
                await cached.get()
        go.set()
        await holds(lambda: cached.peek() is True)
        assert (await cached.get())[0] is True  # "try again in a moment"

    run(main)


def test_glances_make_one_at_a_time_and_rest_after_a_failure() -> None:
    """However many pages are shown before the first verdict is there."""
    go, asked = threading.Event(), []

    def make() -> int:
        asked.append(threading.current_thread().name)
        go.wait(240)
        raise StorageUnavailableError("it is away")

    async def main() -> None:
        cached = CachedResult(make, fresh_ms=60_000)
        assert [cached.peek() for _ in range(50)] == [None] * 50
        first = asyncio.create_task(cached.get())
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(StorageUnavailableError, match="it is away"):
            await first
        assert [cached.peek() for _ in range(50)] == [None] * 50
        assert asked == ["sparklog-ui-renew"]
        with pytest.raises(StorageUnavailableError, match="it is away"):
            await cached.get()  # who asks for it is told, each time

    run(main)
