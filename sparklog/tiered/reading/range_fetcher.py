"""Ranged gets in blocks: each block is asked for once, however many threads want it.

Blocks that are missing side by side come by one request. What a sequential reader will want next
is fetched by a few threads meanwhile. Blocks of encrypted objects are kept as they are stored.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, Protocol

BLOCK_BYTES: Final = 512 << 10  # what a look-up fetches, and what caches keep
RUN_BYTES: Final = 4 << 20  # of a sequential reader's requests


class Blocks(Protocol):
    """What keeps blocks: `block_cache.BlockCache`."""

    def get(self, name: str, number: int) -> bytes | None:
        """Return a block, None if it isn't kept."""

    def put(self, name: str, number: int, data: bytes, *, is_lasting: bool = True) -> None:
        """Keep a block, if there is room: in memory only unless `is_lasting`."""


class Ranges(Protocol):
    """An object as it is stored, by ranges."""

    @property
    def cache_key(self) -> str:
        """What identifies these bytes among those of all stores and histories."""

    @property
    def is_lasting(self) -> bool:
        """Whether the key identifies them for other processes as well, and later."""

    @property
    def stored_size(self) -> int:
        """Its size in bytes."""

    def fetch(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end), all of them; one request."""


@dataclass(frozen=True, slots=True)
class _Run:
    first: int
    futures: list["Future[bytes]"]


class Fetcher:
    """Shared by the files of one store. `threads` requests at a time go ahead of readers; 0: none,
    and all is done in the callers' threads.
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
        """Return the bytes [start, end) of an object, as far as it goes."""
        end = min(end, source.stored_size)
        if start >= end:
            return b""
        first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        found, runs = self._claim(source, range(first, last + 1))
        for run in runs:
            self._fetch(source, run)
        parts = [future.result() for future in found]
        parts[-1] = parts[-1][: end - last * BLOCK_BYTES]
        parts[0] = parts[0][start - first * BLOCK_BYTES :]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def prefetch(self, source: Ranges, start: int, end: int) -> None:
        """Begin to fetch [start, end), in whole runs; returns at once."""
        end = min(end, source.stored_size)
        if start >= end or not self._threads:
            return
        numbers = range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        _, runs = self._claim(source, numbers)
        for run in runs:
            self.begin(partial(self._fetch, source, run))

    def begin(self, work: Callable[[], object]) -> None:
        """Have some work done by one of the threads; what goes wrong is its own business."""
        if self._threads:
            self._threads_of().submit(work)

    def _threads_of(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "sparklog-fetch")
            return self._pool

    def _claim(
        self, source: Ranges, numbers: Sequence[int]
    ) -> tuple[list["Future[bytes]"], list[_Run]]:
        """Return a future for each block, and the runs that the caller has to fetch."""
        if self._pid != os.getpid():
            self._renew()  # a forked child has none of the threads that were at work
        found: list[Future[bytes]] = []
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
            found.append(future)
        return found, list(_runs(missing))

    def _fetch(self, source: Ranges, run: _Run) -> None:
        """Fetch a run by one request and hand its blocks out; errors go to who waits for them."""
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
                self._flying.pop((source.cache_key, number), None)
            if isinstance(result, bytes):
                future.set_result(result)
            else:
                future.set_exception(result)


def _runs(missing: list[tuple[int, "Future[bytes]"]]) -> Iterable[_Run]:
    """Group blocks that lie side by side, up to RUN_BYTES."""
    most = RUN_BYTES // BLOCK_BYTES
    for _, group in groupby(enumerate(missing), lambda pair: pair[1][0] - pair[0]):
        side_by_side = [entry for _, entry in group]
        for at in range(0, len(side_by_side), most):
            part = side_by_side[at : at + most]
            yield _Run(part[0][0], [future for _, future in part])
