"""Ledger entries with inline data that a process keeps, so that it fetches each of them once.

The data of all partitions of a small commit are in one entry. A reader takes them partition after
partition, and a service merges them so; without the cache each partition would cost a request.
"""

from collections import OrderedDict
from typing import Final

from sparklog.diskless.entries import ENTRY_BYTES_MAX
from sparklog.diskless.names import parse_entry
from sparklog.diskless.process_lock import ProcessLock
from sparklog.errors import DataCorruptionError
from sparklog.tiered.object_store.store import Store

KEPT_BYTES: Final = 16 << 20
_STRIPES: Final = 64  # fetches at the same time; of one entry there is one
_OLDEST_EACH: Final = 8


class EntryCache:
    """Entries by the names of their objects. Threads may share it.

    `kept_bytes`: a bound of what is kept. An entry has up to 256 KiB of inline data.
    """

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = self._evictions = 0
        self._lock = ProcessLock()
        self._fetching = [ProcessLock() for _ in range(_STRIPES)]

    def keep(self, name: str, raw: bytes) -> None:
        """Keep an entry that was read as news. The oldest entries make room for it."""
        with self._lock:
            self._put(name, raw, newest=False)

    def find(self, name: str, end: int) -> bytes | None:
        """Return an entry from the cache. None: it is not there, or has fewer than `end` bytes."""
        raw = self._kept.get(name)
        return None if raw is None or len(raw) < end else raw

    def fetch(self, store: Store, name: str, end: int) -> bytes:
        """Return a whole entry, fewer than `end` bytes only if the object has no more.

        Raises: FileNotFoundError; DataCorruptionError: the object is another entry, or too large;
            StorageUnavailableError.
        Cost: one get, unless it is kept; one for all threads that want the same entry now.
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
        """Forget all entries: those of another history have the same names."""
        with self._lock:
            self._kept.clear()
            self._size = 0

    def _put(self, name: str, raw: bytes, *, newest: bool) -> None:
        """Put an entry in the place of the oldest, or of the `newest`.

        A reader comes by all entries once per partition. If they are more than fit, the oldest is
        always the next one that it wants; so most of what is kept stays.
        """
        self._size -= len(self._kept.pop(name, b""))
        while self._kept and self._size + len(raw) > self._kept_bytes:
            self._evictions += 1
            last = newest and self._evictions % _OLDEST_EACH != 0
            self._size -= len(self._kept.popitem(last=last)[1])
        if len(raw) <= self._kept_bytes:
            self._kept[name] = raw
            self._size += len(raw)


def check_number(raw: bytes, name: str, url: str) -> None:
    """Raise DataCorruptionError if the first bytes of an object are those of another entry."""
    found = int.from_bytes(raw[:8], "big")  # an entry is a record batch at offset `number`
    if raw and found != parse_entry(name):
        raise DataCorruptionError(
            f"the object holds entry {found} of the ledger; restore it from a copy of the bucket",
            path=f"{url}/{name}",
            position=0,
        )
