"""A bounded memory: what goes, and when; and that what a process remembers is bounded by it."""

import threading

from sparklog.lru_cache import LruCache


def test_the_oldest_use_goes_first() -> None:
    cache: LruCache[str, int] = LruCache(2)
    cache.put("a", 1)
    assert cache.get_or_make("b", lambda: 2) == 2
    assert cache.get("a") == 1  # a use
    assert cache.get_or_make("c", lambda: 3) == 3
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    cache.put("c", 4)
    assert (cache.get("c"), len(cache)) == (4, 2)
    assert cache.keys() == ["a", "c"]
    cache.clear()
    assert len(cache) == 0


def test_threads_that_miss_at_once_get_one_value() -> None:
    cache: LruCache[str, object] = LruCache(1)
    together = threading.Barrier(2)
    found: list[object] = []

    def ask() -> None:
        def make() -> object:
            together.wait(240)
            return object()

        found.append(cache.get_or_make("a", make))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(found) == 2
    assert found[0] is found[1]
