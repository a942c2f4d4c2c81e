"""Tiering: upload and cold reads beside plain fsspec, look-ups and opening, on a local S3 server.

python -m tests.benchmarks tier [--megabytes N]
"""

import argparse
import itertools
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.clock import system_clock
from sparklog.fs import LOCAL
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.segment_store import SegmentPut
from sparklog.tiered.copying.remote_storage_manager import RemoteStorageManager
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState, new_segment_id
from sparklog.tiered.target import open_store
from tests.benchmarks.table import Row, print_rows
from tests.logdir.partitions import T0
from tests.tiered.archive.test_archive import thousand_segments
from tests.tiered.logs import Put, data_of
from tests.tiered.s3 import S3Server

SEGMENT_BYTES = 64 << 20


def seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def medians(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median of each, by turns."""
    took: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            took[name].append(seconds(action))
    return {name: statistics.median(found) for name, found in took.items()}


def make(path: Path, megabytes: int) -> None:
    noise = os.urandom(1 << 20)
    values = pa.array(
        [noise[i * 977 % (len(noise) - 1000) :][:1000] for i in range(16_000)], pa.binary()
    )
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"segment.bytes": SEGMENT_BYTES, "retention.ms": -1})
        for _ in range(megabytes // 16 + 4):
            log.append("t", pa.table({"value": values}), partition=0)


def jobs(path: Path) -> list[Put]:
    directory = str(path / "t-0")
    with sparklog.open(path) as log:
        topic_id = log.topic("t").id
    bases = segment_bases(LOCAL, directory)
    made = []
    for base, end in itertools.pairwise(bases):
        size = LOCAL.size(f"{directory}/{base:020d}.log")
        segment = RemoteSegment(
            topic="t", topic_id=topic_id, partition=0, id=new_segment_id(), base=base, end=end,
            max_timestamp=0, size=size, epochs=((0, base),), state=SegmentState.COPY_STARTED,
            time_ms=0,
        )  # fmt: skip
        made.append(
            SegmentPut(
                segment=segment, data=data_of(segment, directory), config={}, interval_bytes=4096
            )
        )
    return made


def throughput_rows(base: Path, s3: S3Server, megabytes: int, rounds: int) -> Iterator[Row]:
    import s3fs

    make(base / "log", megabytes)
    wanted = jobs(base / "log")
    total = sum(job.segment.size for job in wanted) / 1e6
    files = [job.data.where for job in wanted]

    def plain() -> s3fs.S3FileSystem:
        return s3fs.S3FileSystem(**s3.options(), skip_instance_cache=True)

    def put() -> None:
        fs, bucket = plain(), s3.bucket().removeprefix("s3://")
        for at, file in enumerate(files):
            fs.put_file(file, f"{bucket}/{at}")

    def copy(threads: int) -> str:
        url = s3.bucket() + "/x"
        store = open_store(url, s3.options())
        for done in RemoteStorageManager(store, system_clock, threads=threads).put(wanted):
            assert done.error is None, done.error
        return url

    took = medians({"plain": put, "one": lambda: copy(1), "two": lambda: copy(2)}, rounds)
    for name, threads in (("one", 1), ("two", 2)):
        yield Row(
            f"upload, {threads} at a time", f"{total / took[name]:.0f} MB/s",
            took["plain"] / took[name], f"fsspec put_file {total / took['plain']:.0f} MB/s",
            ">= 0.8",
        )  # fmt: skip
    url = copy(2)
    names = [stored.name for stored in open_store(url, s3.options()).list()]

    def get() -> None:
        fs = plain()
        for name in names:
            fs.get_file(f"{url.removeprefix('s3://')}/{name}", str(base / "out"))

    def read() -> None:
        with sparklog.open(url, storage_options=s3.options()) as archive:
            for _ in archive.read("t"):
                pass

    took = medians({"plain": get, "read": read}, rounds)
    yield Row(
        "cold sequential read, to Arrow", f"{total / took['read']:.0f} MB/s",
        took["plain"] / took["read"], f"fsspec get_file {total / took['plain']:.0f} MB/s", ">= 0.8",
    )  # fmt: skip


def lookup_rows(s3: S3Server) -> Iterator[Row]:
    url, made = s3.bucket() + "/y", thousand_segments()
    store = open_store(url, s3.options())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda entry: store.put(*entry), made.objects.items()))

    def opened() -> None:
        with sparklog.open(url, storage_options=s3.options()) as archive:
            assert archive.offsets("t") == {0: (0, 4000)}

    took = statistics.median(seconds(opened) for _ in range(5))
    yield Row("1,000 segments listed and opened", f"{took:.2f} s", None, "", "< 2 s")
    with sparklog.open(url, storage_options=s3.options()) as archive:
        archive.offsets("t")
        found = sorted(
            seconds(lambda at=at: archive.offsets_for_times("t", T0 + 1000 * at)) * 1000
            for at in random.Random(1).sample(range(4000), 200)
        )
    yield Row("look-up by time, cold", f"p50 {found[100]:.1f}, p99 {found[197]:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--tier-rounds", type=int, default=3)
    given, _ = parser.parse_known_args()
    base = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
    s3 = S3Server(base / "s3")
    s3.start()
    try:
        print_rows("Tier, bytes", throughput_rows(base, s3, given.megabytes, given.tier_rounds))
        print_rows("Tier, requests", lookup_rows(s3))
    finally:
        s3.kill()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
