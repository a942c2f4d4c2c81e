"""Entries with inline data: each is fetched once, by however many threads, in bounded memory."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.common import TopicPartition
from sparklog.diskless.entry_cache import EntryCache
from sparklog.diskless.names import entry_name
from sparklog.errors import DataCorruptionError
from sparklog.testing.faultstore import FaultStore
from tests.diskless.bucket_log import LOG_ID, T0, T1, BucketLog, Part, counting, expected, read_all


def raw(number: int, size: int = 100) -> bytes:
    return number.to_bytes(8, "big").ljust(size, b"x")


def stored(numbers: range) -> FaultStore:
    store = FaultStore()
    for number in numbers:
        store.put(entry_name(LOG_ID, number), raw(number))
    return store


def test_each_entry_is_fetched_once_for_all_partitions(tmp_path: Path) -> None:
    """One request per entry, not one per partition and entry."""
    log = BucketLog(f"file://{tmp_path}", {"t": 8})
    keys = [TopicPartition("t", p) for p in range(8)]
    for _ in range(5):
        log.commit([Part(key, 3) for key in keys])
    view = log.view(memory_bytes=0)
    view.spans(keys)
    with counting(view) as cost, view.metadata_snapshot():
        for key in keys:
            assert read_all(view, key) == expected(0, 15)
    follow = 1
    assert cost.gets == 5 + follow


def test_kept_entries_are_read_without_locks_and_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four readers in one process would wait for one another."""
    log = BucketLog(f"file://{tmp_path}")
    for _ in range(8):
        log.commit([Part(T0, 3), Part(T1, 3)])
    view = log.view()
    assert read_all(view, T0) == expected(0, 24)

    def refuse(*given: object) -> bytes:
        raise AssertionError("the fetcher was asked")

    monkeypatch.setattr(view.objects.remote.fetcher, "read", refuse)
    monkeypatch.setattr(view.objects.remote.fetcher, "prefetch", refuse)
    assert read_all(view, T1) == expected(0, 24)


def test_threads_fetch_an_entry_once() -> None:
    store, cache, name = stored(range(1)), EntryCache(), entry_name(LOG_ID, 0)
    waiting, real = threading.Barrier(4), store.get

    def fetch(_: int) -> bytes:
        waiting.wait()
        return cache.fetch(store, name, 100)

    def slow(*given: object, **named: object) -> bytes:
        threading.Event().wait(0.02)
        return real(*given, **named)  # type: ignore[arg-type]

    store.get = slow  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(fetch, range(4))) == {raw(0)}
    assert store.counts.gets == 1


def test_what_is_kept_is_bounded_and_of_use() -> None:
    """Reads that come by all entries, time and again, find those that fit."""
    store, cache = stored(range(40)), EntryCache(kept_bytes=20 * 100)
    for _ in range(5):
        for number in range(40):
            assert cache.fetch(store, entry_name(LOG_ID, number), 100) == raw(number)
            kept = sum(cache.find(entry_name(LOG_ID, n), 0) is not None for n in range(40))
            assert kept <= 20
    assert store.counts.gets < 5 * 40 * 0.7
    gets = store.counts.gets
    for _ in range(20):  # other entries take their place in the end
        for number in range(30, 40):
            cache.fetch(store, entry_name(LOG_ID, number), 100)
    assert store.counts.gets - gets < 60


def test_news_take_the_place_of_the_oldest() -> None:
    cache = EntryCache(kept_bytes=300)
    for number in range(6):
        cache.keep(entry_name(LOG_ID, number), raw(number))
    kept = [n for n in range(6) if cache.find(entry_name(LOG_ID, n), 100) is not None]
    assert kept == [3, 4, 5]
    cache.keep("large", b"x" * 301)
    assert cache.find("large", 0) is None
    cache.clear()
    assert cache.find(entry_name(LOG_ID, 5), 0) is None


def test_an_entry_that_was_cut_off_is_fetched_again() -> None:
    """The answer was cut off; or its data were cut from the object, which comes to light so."""
    store, cache, name = stored(range(1)), EntryCache(), entry_name(LOG_ID, 0)
    cache.keep(name, raw(0, 50))
    assert cache.find(name, 51) is None
    assert cache.fetch(store, name, 51) == raw(0)
    assert cache.find(name, 100) == raw(0)


def test_another_entry_is_not_taken() -> None:
    store, cache, name = stored(range(1)), EntryCache(), entry_name(LOG_ID, 0)
    store.put(name, raw(7))
    with pytest.raises(DataCorruptionError, match="contains ledger entry 7"):
        cache.fetch(store, name, 10)
    assert cache.find(name, 0) is None
