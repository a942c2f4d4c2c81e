"""Requests of a log in a bucket: an idle hour, small commits with their merges, unmerged reads.

    python -m tests.benchmarks.bench_requests [--only idle commits reads]

The store is a dict of this process that counts requests as S3 bills them, so the counts are those
of a bucket. The hour is simulated: the service's clock and timer are moved on by one second at a
time. Prices are those of S3 Standard in us-east-1: 0.005 dollars for 1,000 PUT, COPY, POST or LIST
requests, 0.0004 for 1,000 GET or HEAD requests, and none for deletions.
"""

import argparse
import bisect
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparklog.clock import ManualClock
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.upkeep import DisklessUpkeep
from sparklog.log.log import Log, home_of
from sparklog.storage.round_report import Report
from sparklog.storage.upkeep import Work
from sparklog.tiered.object_store.driver import Upload
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.object_store.store import StoredObject
from tests.benchmarks.table import Row, print_rows

PAGE: Final = 1000
KINDS: Final = ("GET", "HEAD", "PUT", "create", "LIST", "DELETE")
USD: Final = {"GET": 0.4e-6, "HEAD": 0.4e-6, "PUT": 5e-6, "create": 5e-6, "LIST": 5e-6, "DELETE": 0}
HOUR_S: Final = 3600
MONTH_HOURS: Final = 30 * 24
Counted = dict[str, int]
OPTIONS: Final = UpkeepOptions()


class _Object(NamedTuple):
    data: bytes
    time_ms: int


@dataclass
class Objects:
    """What a bucket holds, for the drivers of several processes."""

    clock: ManualClock = field(default_factory=ManualClock)
    held: dict[str, _Object] = field(default_factory=dict)
    names: list[str] | None = None  # sorted, as of the last listing
    lock: threading.Lock = field(default_factory=threading.Lock)


class CountingDriver:
    """A `Driver` over a dict that counts requests by kind; "create" is a conditional PUT."""

    url = "memory://requests"
    many, looks, delete_max, replaces, skips, sends_once = True, False, PAGE, True, True, True

    def __init__(self, objects: Objects) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self._objects = objects

    def _count(self, kind: str) -> None:
        with self._objects.lock:
            self.counts[kind] += 1

    def put(self, name: str, data: bytes, crc: int) -> None:
        self._count("PUT")
        self._store(name, data)

    def create(self, name: str, data: bytes, crc: int) -> bool:
        self._count("create")
        is_new = name not in self._objects.held
        if is_new:
            self._store(name, data)
        return is_new

    def _store(self, name: str, data: bytes) -> None:
        objects = self._objects
        with objects.lock:
            if name not in objects.held:
                objects.names = None
            objects.held[name] = _Object(bytes(data), objects.clock())

    def copies(self, source: Any) -> bool:
        return False

    def copy(self, source: Any, source_name: str, name: str, size: int) -> int:
        raise NotImplementedError

    def read(self, name: str, start: int, end: int) -> bytes:
        self._count("GET")
        return self._found(name).data[start:end]

    def size(self, name: str) -> int:
        self._count("HEAD")
        return len(self._found(name).data)

    def _found(self, name: str) -> _Object:
        try:
            return self._objects.held[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def check(self, name: str, size: int, crc: int) -> None:
        self._count("HEAD")

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        self._count("LIST")
        objects = self._objects
        with objects.lock:
            if objects.names is None:
                objects.names = sorted(objects.held)
            names, after = objects.names, token or start_after
            first = max(bisect.bisect_right(names, after), bisect.bisect_left(names, prefix))
            end = bisect.bisect_right(names, prefix + "\U0010ffff")
            page = [(name, objects.held[name]) for name in names[first : min(first + PAGE, end)]]
        found = [StoredObject(name, len(each.data), each.time_ms) for name, each in page]
        return found, found[-1].name if first + PAGE < end else None

    def delete(self, names: Sequence[str]) -> None:
        self._count("DELETE")
        with self._objects.lock:
            self._objects.names = None
            for name in names:
                self._objects.held.pop(name, None)

    def begin(self, name: str, size: int) -> Upload:
        self._count("PUT")
        return _Parts(self, name)

    def uploads(self, before_ms: int) -> list[Upload]:
        self._count("LIST")
        return []


class _Parts:
    def __init__(self, driver: CountingDriver, name: str) -> None:
        self._driver, self._name = driver, name
        self._parts: dict[int, bytes] = {}

    def part(self, number: int, at: int, data: bytes, crc: int) -> None:
        self._driver._count("PUT")
        self._parts[number] = bytes(data)

    def finish(self, receipts: Sequence[Any]) -> None:
        self._driver.put(self._name, b"".join(self._parts[n] for n in sorted(self._parts)), 0)

    def abort(self) -> None:
        self._parts.clear()


class Process:
    """A process that has the log open; its requests are counted."""

    def __init__(self, objects: Objects, mode: str) -> None:
        self.driver = CountingDriver(objects)
        self.log = open_log(
            self.driver.url, mode=mode, store=ObjectStore(self.driver), clock=objects.clock
        )

    def counted(self, action: Callable[..., object], *given: Any) -> Counted:
        """Return the requests that `action` makes."""
        before = dict(self.driver.counts)
        action(*given)
        return {kind: self.driver.counts[kind] - before[kind] for kind in KINDS}


class SimulatedService(Process):
    """What `sparklog.service.Service` does in its threads, second by second of a clock."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects, "rw")
        home, clock = home_of(self.log), objects.clock
        assert isinstance(home, DisklessHome)
        self.upkeep = upkeep = DisklessUpkeep(
            home.commits, lambda: home.groups, OPTIONS, timer=lambda: float(clock())
        )
        self._clock = clock
        self._due: dict[Work, float] = dict.fromkeys(upkeep.works, 0.0)
        assert upkeep.lease.acquire()
        upkeep.lease.lends = True
        upkeep.take_up(clock())

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self._clock.advance(1000)
            self.step()

    def retain_after(self, ms: int) -> None:
        """Do the next round of retention so much later."""
        self._clock.advance(ms)
        self.upkeep.lease.renew()
        self.upkeep.retain(Report(path="bench", time_ms=self._clock()))

    def step(self) -> None:
        """Do what is due by the clock."""
        upkeep, now = self.upkeep, self._clock()
        assert not upkeep.is_replaced()
        upkeep.pressing(now)
        for work in upkeep.works:
            report = Report(path="bench", time_ms=now)
            if self._due[work] <= now:
                self._due |= upkeep.work(work, report)
            if work == "retain" and upkeep.next_purge_ms <= now:
                upkeep.purge(report)
            assert not report.errors, report.errors


def rows_of(count: int, value: bytes = b"v" * 100) -> pa.Table:
    return pa.table({"value": [value] * count})


def said(counted: Counted) -> str:
    named = {"create": "conditional PUT"}
    parts = [f"{number:,} {named.get(kind, kind)}" for kind, number in counted.items() if number]
    return ", ".join(parts) or "none"


def usd(counted: Counted) -> float:
    return sum(number * USD[kind] for kind, number in counted.items())


# --- an idle hour ---------------------------------------------------------------------------------


def idle_rows(sizes: Sequence[int]) -> Iterator[Row]:
    for partitions in sizes:
        objects = Objects()
        log = Process(objects, "rw").log
        log.create_topic("t", partitions=partitions)
        numbers = pa.array(range(partitions), pa.int32())
        log.append("t", pa.table({"partition": numbers, "value": [b"v"] * partitions}))
        settled = SimulatedService(objects)
        settled.run(1000)  # merges all of it, and deletes what was replaced
        settled.upkeep.lease.release()
        service = SimulatedService(objects)
        first = service.counted(service.run, 300)
        service.run(300)
        hour = service.counted(service.run, HOUR_S)
        sweeps_ms = OPTIONS.sweep_interval_ms
        later = service.counted(service.retain_after, sweeps_ms)
        month = MONTH_HOURS * (usd(hour) + usd(later) * HOUR_S * 1000 / sweeps_ms)
        name = f"{partitions:,} partitions"
        yield Row(f"{name}: the first five minutes of a service", said(first))
        yield Row(f"{name}: an idle hour", said(hour))
        yield Row(
            f"{name}: the next sweep is due, idle", said(later),
            beside=f"{month:.2f} dollars per idle month",
        )  # fmt: skip


# --- small commits and their merges ---------------------------------------------------------------

COMMITS: Final = 5000


def commit_rows() -> Iterator[Row]:
    """One commit of ten rows per second, with a service beside it, and with one afterwards."""
    for is_beside in (True, False):
        objects = Objects()
        writer = Process(objects, "rw")
        writer.log.create_topic("t")
        service = SimulatedService(objects) if is_beside else None
        rows = rows_of(10)
        before = dict(writer.driver.counts)
        for _ in range(COMMITS):
            writer.log.append("t", rows)
            objects.clock.advance(1000)
            if service is not None:
                service.step()
        commits = {kind: writer.driver.counts[kind] - before[kind] for kind in KINDS}
        if service is None:
            service = SimulatedService(objects)
        service.run(1500)
        segments = home_of(writer.log).head.follow().extents  # type: ignore[attr-defined]
        assert all(each.segment for extents in segments.values() for each in extents)
        seconds = 1500 + (COMMITS if is_beside else 0)
        total = dict(service.driver.counts)
        idle = service.counted(service.run, HOUR_S // 6)
        merging = {
            kind: max(0, total[kind] - idle[kind] * seconds // (HOUR_S // 6)) for kind in KINDS
        }
        when = "beside them" if is_beside else "afterwards"
        yield Row(
            f"{COMMITS:,} commits of 10 rows, the writer", said(commits),
            beside=f"{usd(commits) / COMMITS * 1e6:.2f} dollars per million commits",
        )  # fmt: skip
        yield Row(
            f"their merges by a service {when}, without its idle requests", said(merging),
            beside=f"{usd(merging) / COMMITS * 1e6:.2f} dollars per million commits",
        )  # fmt: skip


# --- reads of unmerged data -----------------------------------------------------------------------

PARTITIONS: Final = 100
ROUNDS: Final = 3


def read_rows() -> Iterator[Row]:
    objects = Objects()
    writer = Process(objects, "rw")
    writer.log.create_topic("t", partitions=PARTITIONS)
    numbers = pa.array([p for p in range(PARTITIONS) for _ in range(10)], pa.int32())
    rows = pa.table({"partition": numbers, "value": [b"v" * 100] * len(numbers)})
    for _ in range(100):
        writer.log.append("t", rows)
    seconds: dict[int, list[float]] = {1: [], 4: []}
    counted: dict[int, Counted] = {}
    for _ in range(ROUNDS):
        for threads in seconds:
            reader = Process(objects, "r")
            began = time.perf_counter()
            read(reader.log, threads)
            seconds[threads].append(time.perf_counter() - began)
            counted[threads] = dict(reader.driver.counts)
    total = 100 * len(numbers)
    rates = {threads: total / statistics.median(took) for threads, took in seconds.items()}
    for threads in seconds:
        yield Row(
            f"{PARTITIONS} partitions x 100 unmerged commits, {threads} thread"
            + ("s" if threads > 1 else ""),
            f"{said(counted[threads])}; {rates[threads]:,.0f} rows/s",
            rates[threads] / rates[1], "one thread" if threads > 1 else "",
        )  # fmt: skip


def read(log: Log, threads: int) -> None:
    """Read all partitions, each thread its share of them."""

    def share(number: int) -> int:
        mine = range(number, PARTITIONS, threads)
        return sum(
            batch.num_rows for p in mine for batch in log.read("t", partitions=[p])
        )

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(share, range(threads))) == 100 * 10 * PARTITIONS


def main() -> None:
    parser = argparse.ArgumentParser()
    tables: dict[str, tuple[str, Callable[[list[int]], Iterable[Row]]]] = {
        "idle": ("Requests of an idle service", idle_rows),
        "commits": ("Requests of small commits and their merges", lambda _: commit_rows()),
        "reads": ("Requests of reads of unmerged data", lambda _: read_rows()),
    }
    parser.add_argument("--only", nargs="*", default=list(tables), choices=list(tables))
    parser.add_argument("--partitions", nargs="*", type=int, default=[10, 1000, 10_000])
    given = parser.parse_args()
    for name in given.only:
        title, rows = tables[name]
        print_rows(title, rows(given.partitions))


if __name__ == "__main__":
    main()
