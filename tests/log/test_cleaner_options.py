"""The brake holds its rate, for one thread and for several."""

import threading

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.log.cleaner_options import CleanerOptions, RateLimit, unthrottled


class Time:
    """Milliseconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, ms: float) -> None:
        self.now += ms


def test_the_rate_is_held() -> None:
    time = Time()
    limit = RateLimit(1_000_000, timer=time, sleep=time.sleep)
    for _ in range(100):
        limit(64_000)
    assert time.now == pytest.approx(6_400, rel=0.1)


def test_idle_time_is_not_saved_up() -> None:
    time = Time()
    limit = RateLimit(1_000_000, timer=time, sleep=time.sleep)
    time.sleep(60_000)
    for _ in range(10):
        limit(100_000)
    assert time.now - 60_000 == pytest.approx(900, rel=0.1)


def test_threads_share_it() -> None:
    naps: list[float] = []
    limit = RateLimit(1_000_000, timer=lambda: 0.0, sleep=naps.append)
    threads = [threading.Thread(target=limit, args=(10_000,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(naps) == [10.0 * n for n in range(1, 9)]


def test_by_default_nothing_is_held_back() -> None:
    assert CleanerOptions().throttle() is unthrottled
    assert isinstance(CleanerOptions(io_max_bytes_per_second=5).throttle(), RateLimit)
    with pytest.raises(InvalidRequestError, match=r"log\.cleaner\.io\.max\.bytes\.per\.second"):
        CleanerOptions(io_max_bytes_per_second=0).throttle()
