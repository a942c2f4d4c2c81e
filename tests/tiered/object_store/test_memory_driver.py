"""`memory://`: what threads of a process do to its dict at the same time."""

import gc
import itertools
from collections.abc import Mapping

from sparklog.tiered.target import open_store

FILES = 5000  # more than CPython has free tuples at hand: without a new one nothing is collected


def test_a_listing_bears_what_others_put_meanwhile() -> None:
    """A collection of garbage comes amid a listing, and with it another thread's turn."""
    store, numbers = open_store("memory://listed-and-changed"), itertools.count()
    for _ in range(FILES):
        store.put(f"a/{next(numbers):04}", b"x")

    def others(phase: str, info: Mapping[str, int]) -> None:
        store.put(f"a/{next(numbers):04}", b"x")

    before = gc.get_threshold()
    gc.callbacks.append(others)
    gc.set_threshold(5)
    try:
        found = store.list("a/")
    finally:
        gc.callbacks.remove(others)
        gc.set_threshold(*before)
    put = next(numbers)
    assert put > FILES
    assert [one.name for one in found][:FILES] == [f"a/{n:04}" for n in range(FILES)]
    store.delete([one.name for one in store.list()])
