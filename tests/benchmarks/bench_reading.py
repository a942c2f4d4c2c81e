"""Reading a log in a store beside getting the same bytes with the same client, on loopback.

Both by one client, with as many requests at a time; nothing is in a cache at first. Ratios
count, not megabytes: client, server and disk share this machine's cores.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from sparklog.common import TopicPartition
from sparklog.diskless import home
from sparklog.diskless.extents import Extent
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.log import home_of
from sparklog.log.read_retry import PartitionRead
from sparklog.storage.view import View
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.target import open_store
from tests.benchmarks.table import Row, print_rows, sample
from tests.tiered.s3 import S3Server, Unavailable

MIB = 1 << 20
ROUNDS = 3
KEY = TopicPartition("t", 0)
RUN = 4 * MIB


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


class Bucket:
    """A log with one partition, written by commits of `tables`."""

    def __init__(self, server: S3Server, tables: Iterable[pa.Table]) -> None:
        self.url = server.bucket() + "/log"
        self.store = open_store(self.url, server.options())
        log = home.open_log(self.url, mode="rw", store=self.store)
        log.create_topic("t", partitions=1)
        for table in tables:
            log.append("t", table)
        assert isinstance(home_of(log), home.DisklessHome)
        self.extents: Sequence[Extent] = home_of(log).head.follow().extents[KEY]
        self.size = sum(extent.size for extent in self.extents)
        view: View = home_of(log).view
        self.end = view.spans([KEY])[KEY][1]
        self.plan = view.plan(KEY, 0, self.end)
        self.topic_id = view.topic_id(*KEY)
        log.close()

    def read(self, threads: int) -> None:
        """As a task does, in a process that knows nothing yet."""
        options = RemoteOptions(remote_fetch_threads=threads)
        log = home.open_log(self.url, store=self.store, remote=options)
        assert self.plan is not None
        view = self.plan.open(home_of(log).view)
        read = PartitionRead(view, *KEY, 0, self.end, topic_id=self.topic_id)
        rows = read_partition(read, schema_of(["offset", "value"]))
        assert sum(batch.num_rows for batch in rows) == self.end

    def get(self, threads: int) -> None:
        """The same bytes, and nothing else."""
        ranges = [
            (each.object, at, min(at + RUN, each.start + each.size))
            for each in self.extents
            for at in range(each.start, each.start + each.size, RUN)
        ]
        with ThreadPoolExecutor(threads) as pool:
            got = sum(len(data) for data in pool.map(lambda each: self.store.get(*each), ranges))
        assert got == self.size

    def row(self, name: str, threads: int = RemoteOptions().remote_fetch_threads) -> Row:
        """Take turns; the first one doesn't count."""
        turns = [
            (seconds(lambda: self.read(threads)), seconds(lambda: self.get(threads)))
            for _ in range(ROUNDS + 1)
        ][1:]
        ours, plain = (self.size / MIB / statistics.median(s) for s in zip(*turns, strict=True))
        ratio = statistics.median(theirs / mine for mine, theirs in turns)
        rate = f"{ours:.1f} MiB/s, {len(self.extents) / statistics.median(t[0] for t in turns):.0f}"
        return Row(name, f"{rate} extents/s", ratio, f"gets: {plain:.1f} MiB/s", ">= 0.8")


def rows(server: S3Server) -> Iterable[Row]:
    large = sample(60_000, 1000)
    yield Bucket(server, [large] * 2).row("large extents")
    small = sample(20, 200)
    bucket = Bucket(server, [small] * 500)
    for threads in (4, 16):
        yield bucket.row(f"500 small extents, {threads} at a time", threads)


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
    try:
        server = S3Server(directory)
        server.start()
        try:
            print_rows("reading a log in a store", rows(server))
        finally:
            server.kill()
    except Unavailable as reason:
        print(f"reading: skipped ({reason})")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
