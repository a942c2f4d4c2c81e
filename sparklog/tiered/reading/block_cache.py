"""`BlockCache`: blocks of remote objects, in memory and on disk; least recently used are evicted.

Objects never change under their name (except rewrapped manifests: `forget` those), so blocks stay
valid, and can be evicted at any time. `range_fetcher` fetches missing blocks, and ensures that two
threads don't fetch the same block.
"""

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.tiered.reading.disk_blocks import DiskBlocks

DIRECTORY_NAME: Final = "remote-log-index-cache"
"""Kafka's name for the directory of fetched data (RemoteIndexCache)."""


@dataclass(slots=True)
class CacheCounts:
    """Counters of block look-ups by result. For reports: not exact with several threads."""

    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0


class BlockCache:
    """Blocks by (cache key, number). Thread-safe; a forked child may use its parent's cache.

    A key identifies the store and the object, and contains the checksum of the bytes if another
    history of the log may have other bytes under this name. `memory_bytes` and `disk_bytes` limit
    the cached blocks (0: none), on disk including headers of about 100 bytes. Blocks on disk
    survive a restart; several processes may share the directory. After construction the cache
    raises no errors, not even for a full disk or a damaged file.

    Raises:
        InvalidRequestError: A limit is negative, or `disk_bytes` is set without `directory`.
    """

    def __init__(
        self,
        memory_bytes: int,
        directory: str | None = None,
        disk_bytes: int = 0,
        *,
        fs: FileSystem = LOCAL,
        clock: Clock = system_clock,
    ) -> None:
        if memory_bytes < 0 or disk_bytes < 0:
            raise InvalidRequestError(
                f"memory_bytes={memory_bytes}, disk_bytes={disk_bytes}: neither may be negative"
            )
        if disk_bytes and directory is None:
            raise InvalidRequestError(
                f"disk_bytes={disk_bytes}: blocks on disk need a directory; set directory too"
            )
        self.counts = CacheCounts()
        self._memory_bytes = memory_bytes
        self._disk: DiskBlocks | None = None
        if directory is not None and disk_bytes:
            self._disk = DiskBlocks(directory, disk_bytes, fs, clock)
        self._renew()

    def _renew(self) -> None:
        """Start with an empty cache and a new lock. A forked child may inherit a locked lock."""
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._held_bytes = 0
        self._pid = os.getpid()

    def _locked(self) -> threading.Lock:
        if self._pid != os.getpid():
            self._renew()
        return self._lock

    def get(self, name: str, number: int) -> bytes | None:
        """Return a block, or None for a block that is not cached."""
        with self._locked():
            block = self._blocks.get((name, number))
            if block is not None:
                self._blocks.move_to_end((name, number))
                self.counts.memory_hits += 1
                return block
        block = None if self._disk is None else self._disk.load(name, number)
        if block is None:
            self.counts.misses += 1
            return None
        self.counts.disk_hits += 1
        self._remember(name, number, block)
        return block

    def put(self, name: str, number: int, data: bytes, *, is_lasting: bool = True) -> None:
        """Cache a block; on disk only if `is_lasting`."""
        self._remember(name, number, data)
        if self._disk is not None and is_lasting:
            self._disk.save(name, number, data)

    def forget(self, name: str, number: int) -> None:
        """Remove block `number` of an object that was deleted or rewritten from the cache."""
        with self._locked():
            self._held_bytes -= len(self._blocks.pop((name, number), b""))
        if self._disk is not None:
            self._disk.remove(name, number)

    def _remember(self, name: str, number: int, block: bytes) -> None:
        if len(block) > self._memory_bytes:
            return
        with self._locked():
            self._held_bytes += len(block) - len(self._blocks.pop((name, number), b""))
            self._blocks[name, number] = block
            while self._held_bytes > self._memory_bytes:
                self._held_bytes -= len(self._blocks.popitem(last=False)[1])
