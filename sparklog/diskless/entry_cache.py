"""A cache of ledger entries with inline data, so that a process fetches each entry once.

The data of all partitions of a small commit are in a single entry. Readers and services process
them partition after partition; without the cache each partition would cost a request.
"""

from collections import OrderedDict
from typing import Final

from sparklog.diskless.entries import ENTRY_BYTES_MAX
from sparklog.diskless.names import parse_entry
from sparklog.diskless.process_lock import ProcessLock
from sparklog.errors import DataCorruptionError
from sparklog.tiered.object_store.store import Store

KEPT_BYTES: Final = 16 << 20
_STRIPES: Final = 64  # concurrent fetches, at most one per entry
_OLDEST_EACH: Final = 8


class EntryCache:
    """A cache of entries by object name. Thread-safe.

    Args:
        kept_bytes: The maximum size of the cache. An entry has up to 256 KiB of inline data.
    """

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = self._evictions = 0
        self._lock = ProcessLock()
        self._fetching = [ProcessLock() for _ in range(_STRIPES)]

    def keep(self, name: str, raw: bytes) -> None:
        """Cache an entry that was just read for the first time.

        Evicts the oldest entries if needed.
        """
        with self._lock:
            self._put(name, raw, newest=False)

    def find(self, name: str, end: int) -> bytes | None:
        """Return an entry that is cached with at least `end` bytes, or None."""
        # No lock: a look-up in a dict is atomic, and the cached bytes are never changed.
        raw = self._kept.get(name)
        return None if raw is None or len(raw) < end else raw

    def fetch(self, store: Store, name: str, end: int) -> bytes:
        """Return a complete entry. Fewer than `end` bytes mean that the object is shorter.

        Cost: a GET unless cached; concurrent threads that want the same entry share a GET.

        Raises:
            FileNotFoundError: The object does not exist.
            DataCorruptionError: The object is another entry, or too large.
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        with self._fetching[hash(name) % _STRIPES]:
            raw = self.find(name, end)
            if raw is None:
                raw = store.get(name, limit=ENTRY_BYTES_MAX)
                check_number(raw, name, store.url)
                with self._lock:
                    self._put(name, raw, newest=True)
            return raw

    def clear(self) -> None:
        """Drop all entries: after a roll-back other entries have the same names."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def _put(self, name: str, raw: bytes, *, newest: bool) -> None:
        """Add an entry after evicting the oldest entries, or with `newest` the newest entries.

        A reader processes all entries once per partition. If they exceed the cache, the oldest
        entry is always the next that the reader needs. Evicting new entries instead preserves most
        of the entries that will be read again.
        """
        self._size -= len(self._kept.pop(name, b""))
        while self._kept and self._size + len(raw) > self._kept_bytes:
            self._evictions += 1
            # Now and then the oldest entry, because entries that no reader needs would never go.
            last = newest and self._evictions % _OLDEST_EACH != 0
            self._size -= len(self._kept.popitem(last=last)[1])
        if len(raw) <= self._kept_bytes:
            self._kept[name] = raw
            self._size += len(raw)


def check_number(raw: bytes, name: str, url: str) -> None:
    """Raise DataCorruptionError if the first bytes of an object belong to another entry."""
    number = int.from_bytes(raw[:8], "big")  # an entry starts with a batch at offset `number`
    if raw and number != parse_entry(name):
        raise DataCorruptionError(
            f"the object contains ledger entry {number} instead of the entry in its name; restore "
            "the object from a copy of the bucket",
            path=f"{url}/{name}",
            position=0,
        )
