"""`BlockCache`: blocks of remote objects in memory and on disk, each fetched once.

Objects never change under their name, so a block is right for ever, and what is kept may be thrown
away at any time. Kafka's directory for this is `remote-log-index-cache` (RemoteIndexCache).
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import LOCAL, FileSystem
from sparklog.tiered.blocks import DiskBlocks

DIRECTORY_NAME: Final = "remote-log-index-cache"
BLOCK_BYTES: Final = 1 << 20
Block = tuple[str, int]  # (object's name, number)
Fetch = Callable[[int, int], bytes]
"""Returns the object's bytes [start, end), as `Store.get`."""


@dataclass(slots=True)
class CacheCounts:
    """Blocks by where they were found, and requests made. For reports: not exact with threads."""

    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    fetches: int = 0


@dataclass(slots=True)
class _Read:
    """A call of `read` on its way: what it found, and what it has promised to bring."""

    name: str
    size: int
    fetch: Fetch
    found: dict[int, bytes] = field(default_factory=dict)
    owned: dict[int, Future[bytes | None]] = field(default_factory=dict)


class BlockCache:
    """Blocks of `block_bytes` of objects, least recently used out first. Threads share it.

    `memory_bytes` and `disk_bytes` bound the blocks kept (0: none there); on disk with a header of
    some 100 bytes each. Blocks of encrypted objects are kept as they are fetched: sealed. Nothing
    about keeping blocks is ever an error: not a full disk, not a damaged file.

    Raises: InvalidRequestError: a bound is negative, `disk_bytes` without `directory`.
    """

    def __init__(
        self,
        memory_bytes: int,
        directory: str | None = None,
        disk_bytes: int = 0,
        *,
        block_bytes: int = BLOCK_BYTES,
        fs: FileSystem = LOCAL,
        clock: Clock = system_clock,
    ) -> None:
        if memory_bytes < 0 or disk_bytes < 0 or block_bytes < 1:
            raise InvalidRequestError(
                f"memory_bytes={memory_bytes}, disk_bytes={disk_bytes}, block_bytes={block_bytes}: "
                "want no negative bounds, and blocks of at least 1 byte"
            )
        if disk_bytes and directory is None:
            raise InvalidRequestError(f"disk_bytes={disk_bytes}: name a directory for them")
        self.block_bytes, self.counts = block_bytes, CacheCounts()
        self._memory_bytes = memory_bytes
        self._disk: DiskBlocks | None = None
        if directory is not None and disk_bytes:
            self._disk = DiskBlocks(directory, disk_bytes, block_bytes, fs, clock)
        self._renew()

    def _renew(self) -> None:
        """Begin with nothing in memory: new, or forked while another thread held the lock."""
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Block, bytes] = OrderedDict()
        self._held_bytes = 0
        self._flying: dict[Block, Future[bytes | None]] = {}
        self._pid = os.getpid()

    def read(self, name: str, start: int, end: int, size: int, fetch: Fetch) -> bytes:
        """Return bytes [start, end) of the object, which has `size`; fewer only where it ends.

        Neighbouring blocks that are missing come by one `fetch`; a block that another thread is
        fetching is waited for. What `fetch` raises passes through to all who wait.
        """
        end = min(end, size)
        if start >= end:
            return b""
        if self._pid != os.getpid():
            self._renew()
        first, last = start // self.block_bytes, (end - 1) // self.block_bytes
        blocks = self._gather(range(first, last + 1), _Read(name, size, fetch))
        at = first * self.block_bytes
        if len(blocks) == 1:
            return blocks[0][start - at : end - at]
        views = [memoryview(block) for block in blocks]
        views[-1] = views[-1][: end - last * self.block_bytes]
        views[0] = views[0][start - at :]
        return b"".join(views)

    def forget(self, name: str, size: int) -> None:
        """Drop an object of `size` bytes, which was deleted or written anew."""
        if self._pid != os.getpid():
            self._renew()
        numbers = range(-(-size // self.block_bytes))
        with self._lock:
            for number in numbers:
                self._held_bytes -= len(self._blocks.pop((name, number), b""))
        if self._disk is not None:
            for number in numbers:
                self._disk.remove(name, number)

    def _gather(self, numbers: range, read: _Read) -> list[bytes]:
        while missing := [number for number in numbers if number not in read.found]:
            waited = self._claim(missing, read)
            try:
                self._from_disk(read)
                for run in _runs(sorted(read.owned)):
                    self._fetch(run, read)
            finally:  # none is left, but if something broke off here: others try for themselves
                self._release(read.owned, read.name, None)
            for number, future in waited.items():
                block = future.result()
                if block is not None:
                    read.found[number] = block
        return [read.found[number] for number in numbers]

    def _claim(self, numbers: Sequence[int], read: _Read) -> dict[int, Future[bytes | None]]:
        """Take what is in memory; what nobody fetches is ours. Return what others fetch."""
        waited: dict[int, Future[bytes | None]] = {}
        with self._lock:
            for number in numbers:
                key = read.name, number
                block = self._blocks.get(key)
                if block is not None:
                    self._blocks.move_to_end(key)
                    self.counts.memory_hits += 1
                    read.found[number] = block
                elif key in self._flying:
                    waited[number] = self._flying[key]
                else:
                    read.owned[number] = self._flying[key] = Future()
        return waited

    def _from_disk(self, read: _Read) -> None:
        if self._disk is not None:
            for number in list(read.owned):
                length = min(self.block_bytes, read.size - number * self.block_bytes)
                block = self._disk.load(read.name, number, length)
                if block is not None:
                    self.counts.disk_hits += 1
                    self._deliver(number, block, read)

    def _fetch(self, run: range, read: _Read) -> None:
        """Bring neighbouring blocks by one request."""
        start = run.start * self.block_bytes
        end = min(read.size, run.stop * self.block_bytes)
        self.counts.fetches += 1
        try:
            data = read.fetch(start, end)
            if len(data) != end - start:
                raise StorageUnavailableError(
                    f"{read.name}: {len(data)} bytes came for [{start}, {end}) of {read.size}: "
                    "it isn't the object that was listed; open the log anew"
                )
        except Exception as error:
            self._release({number: read.owned.pop(number) for number in run}, read.name, error)
            raise
        for number in run:
            at = number * self.block_bytes - start
            block = data if len(run) == 1 else data[at : at + self.block_bytes]
            self.counts.misses += 1
            self._deliver(number, block, read)
            if self._disk is not None:
                self._disk.save(read.name, number, block)

    def _deliver(self, number: int, block: bytes, read: _Read) -> None:
        read.found[number] = block
        with self._lock:
            self._flying.pop((read.name, number), None)
            if len(block) <= self._memory_bytes:
                self._blocks[read.name, number] = block
                self._held_bytes += len(block)
                while self._held_bytes > self._memory_bytes:
                    self._held_bytes -= len(self._blocks.popitem(last=False)[1])
        read.owned.pop(number).set_result(block)

    def _release(
        self, owned: dict[int, Future[bytes | None]], name: str, error: Exception | None
    ) -> None:
        """Give promises back: who waits gets the error, or None and tries for himself."""
        with self._lock:
            for number in owned:
                self._flying.pop((name, number), None)  # a fork forgot them
        for future in owned.values():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        owned.clear()


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    """Yield the stretches of neighbours in ascending `numbers`."""
    begins = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield range(numbers[begins], numbers[at - 1] + 1)
            begins = at
