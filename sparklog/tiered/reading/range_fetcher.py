"""Reads ranges of objects in blocks: each block is requested once, however many threads want it.

Adjacent missing blocks are fetched by a single request. Threads prefetch the next blocks for
sequential readers. Blocks of encrypted objects are cached in encrypted form.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, Protocol

BLOCK_BYTES: Final = 512 << 10  # unit of caches and smallest request
RUN_BYTES: Final = 4 << 20  # size of a sequential reader's requests


class Blocks(Protocol):
    """A cache of blocks: `block_cache.BlockCache`."""

    def get(self, name: str, number: int) -> bytes | None:
        """Return a block, or None for a block that is not cached."""

    def put(self, name: str, number: int, data: bytes, *, is_lasting: bool = True) -> None:
        """Cache a block; on disk only if `is_lasting`."""


class Ranges(Protocol):
    """A stored object that a `Fetcher` reads by ranges."""

    @property
    def cache_key(self) -> str:
        """Identifies these bytes among the bytes of all stores and histories."""

    @property
    def is_lasting(self) -> bool:
        """True if the key identifies the bytes for other processes and at later times."""

    @property
    def stored_size(self) -> int:
        """The size in bytes."""

    def fetch(self, start: int, end: int) -> bytes:
        """Return all bytes [start, end), by a single request."""


@dataclass(frozen=True, slots=True)
class _Run:
    first: int
    futures: list["Future[bytes]"]


class Fetcher:
    """Fetches blocks for all readers of a store.

    `threads`: concurrent prefetching requests; 0: no prefetching, and all requests are made in the
    callers' threads.
    """

    def __init__(self, cache: Blocks, *, threads: int = 4) -> None:
        self._cache, self._threads = cache, threads
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._flying: dict[tuple[str, int], Future[bytes]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def read(self, source: Ranges, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of an object, fewer at the end of the object."""
        end = min(end, source.stored_size)
        if start >= end:
            return b""
        first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        futures, runs = self._claim(source, range(first, last + 1))
        for run in runs:
            self._fetch(source, run)
        parts = [future.result() for future in futures]
        parts[-1] = parts[-1][: end - last * BLOCK_BYTES]
        parts[0] = parts[0][start - first * BLOCK_BYTES :]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def prefetch(self, source: Ranges, start: int, end: int) -> None:
        """Fetch the missing blocks of the bytes [start, end) in the background."""
        end = min(end, source.stored_size)
        if start >= end or not self._threads:
            return
        numbers = range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        _, runs = self._claim(source, numbers)
        for run in runs:
            self.begin(partial(self._fetch, source, run))

    def begin(self, work: Callable[[], object]) -> None:
        """Run `work` in a background thread; errors are ignored."""
        if self._threads:
            with self._lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self._threads, "sparklog-fetch")
                pool = self._pool
            pool.submit(work)

    def _claim(
        self, source: Ranges, numbers: Sequence[int]
    ) -> tuple[list["Future[bytes]"], list[_Run]]:
        """Return a future for each block, and the runs that the caller must fetch.

        A run consists of adjacent blocks. Blocks that are cached, or that another thread fetches,
        belong to no run.
        """
        if self._pid != os.getpid():
            self._renew()  # a forked child has none of its parent's threads
        futures: list[Future[bytes]] = []
        missing: list[tuple[int, Future[bytes]]] = []
        for number in numbers:
            key = source.cache_key, number
            with self._lock:
                future = self._flying.get(key)
                if future is None:
                    data = self._cache.get(*key)
                    future = Future()
                    if data is not None:
                        future.set_result(data)
                    else:
                        self._flying[key] = future
                        missing.append((number, future))
            futures.append(future)
        return futures, list(_runs(missing))

    def _fetch(self, source: Ranges, run: _Run) -> None:
        """Fetch a run (adjacent blocks) by a single request, and set the futures of its blocks.

        An error is raised in the threads that wait for the futures.
        """
        start = run.first * BLOCK_BYTES
        end = min(start + len(run.futures) * BLOCK_BYTES, source.stored_size)
        try:
            data = source.fetch(start, end)
        except BaseException as error:  # noqa: BLE001 - whoever waits for a block gets it
            self._give(source, run, [error] * len(run.futures))
            return
        cuts = range(0, len(data), BLOCK_BYTES)
        self._give(source, run, [data[at : at + BLOCK_BYTES] for at in cuts])

    def _give(self, source: Ranges, run: _Run, results: Sequence[bytes | BaseException]) -> None:
        for number, (future, result) in enumerate(
            zip(run.futures, results, strict=True), run.first
        ):
            if isinstance(result, bytes):
                self._cache.put(source.cache_key, number, result, is_lasting=source.is_lasting)
            with self._lock:
                # Only now, because the block is in the cache: a thread that comes in between finds
                # it either here or there, and no block is fetched twice.
                self._flying.pop((source.cache_key, number), None)
            if isinstance(result, bytes):
                future.set_result(result)
            else:
                future.set_exception(result)


def _runs(missing: list[tuple[int, "Future[bytes]"]]) -> Iterable[_Run]:
    """Group missing blocks into runs: adjacent blocks of up to RUN_BYTES for a single request."""
    most = RUN_BYTES // BLOCK_BYTES
    for _, group in groupby(enumerate(missing), lambda pair: pair[1][0] - pair[0]):
        side_by_side = [entry for _, entry in group]
        for at in range(0, len(side_by_side), most):
            part = side_by_side[at : at + most]
            yield _Run(part[0][0], [future for _, future in part])
