"""What a process remembers between calls that share no object: bounded, the oldest use goes first.

`functools.lru_cache` bounds what a function returned; this one is for values that change, or that
are looked up by less than what they are made from.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `size` values by key; beyond that the one whose last use is the oldest is dropped.

    Threads may share it. Cost: about 1 us a look-up.
    """

    def __init__(self, size: int) -> None:
        assert size > 0
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return a value, None if there is none; counts as a use."""
        with self._mutex:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return a value; what `make` returns where there is none.

        `make` runs without a lock: of two threads that miss at once both run it, and both get the
        value of one.
        """
        found = self.get(key)
        return self._keep(key, make()) if found is None else found

    def _keep(self, key: K, value: V) -> V:
        with self._mutex:
            found = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            self._shrink()
            return found

    def put(self, key: K, value: V) -> None:
        """Set a value."""
        with self._mutex:
            self._values[key] = value
            self._values.move_to_end(key)
            self._shrink()

    def _shrink(self) -> None:
        while len(self._values) > self._size:
            self._values.popitem(last=False)

    def keys(self) -> list[K]:
        """Return all keys; the one whose last use is the oldest comes first."""
        with self._mutex:
            return list(self._values)

    def clear(self) -> None:
        """Drop all."""
        with self._mutex:
            self._values.clear()

    def __len__(self) -> int:
        return len(self._values)
