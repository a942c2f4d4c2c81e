"""The engine alone, one core: append, read, recovery, look-ups, the latency of a small commit."""

import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import sparklog
from sparklog.clock import system_clock
from sparklog.config import TopicConfig
from sparklog.format.compression import Codec, compress
from sparklog.fs import LOCAL
from sparklog.log.log import view_of
from sparklog.log.partition_reader import reader_of
from sparklog.logdir.recovery.partition_recovery import CommittedState, recover
from sparklog.storage.staging import Framing
from tests.benchmarks.table import Row, median_seconds, print_rows, sample
from tests.jars import Unavailable
from tests.oracle import Oracle

BATCH_BYTES = 256 << 10
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)


def _log(path: Path, flush: str) -> sparklog.Log:
    return sparklog.open(path, "rw", options={"flush": flush})


def _append_seconds(table: pa.Table, codec: Codec, flush: str, scratch: Path) -> float:
    with _log(scratch / f"append-{flush}", flush) as log:
        log.create_topic("t", if_not_exists=True)
        framing = Framing(codec=codec, batch_size=BATCH_BYTES)
        return median_seconds(lambda: log.append("t", table, partition=0, framing=framing))


def _framed(table: pa.Table, scratch: Path) -> list[bytes]:
    """The uncompressed record areas that appending `table` would compress."""
    path = scratch / "framed"
    with _log(path, "none") as log:
        log.create_topic("t")
        log.append("t", table, framing=Framing(codec=Codec.NONE, batch_size=BATCH_BYTES))
    raw = (path / "t-0" / f"{0:020d}.log").read_bytes()
    shutil.rmtree(path)
    areas, at = [], 0
    while at < len(raw):
        size = 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
        areas.append(raw[at + 61 : at + size])
        at += size
    return areas


def append_rows(scratch: Path) -> Iterator[Row]:
    for value_bytes, records in ((100, 1_000_000), (1000, 150_000)):
        table = sample(records, value_bytes)
        areas = _framed(table, scratch)
        size = sum(map(len, areas))
        whole = bytearray(b"".join(areas))
        target = bytearray(size)

        def copy(target: bytearray = target, whole: bytearray = whole) -> None:
            target[:] = whole

        # As the log does: on at the end of one growing file.
        def write(whole: bytearray = whole) -> None:
            with open(scratch / "plain", "ab", buffering=0) as file:
                file.write(whole)
                os.fdatasync(file.fileno())

        def cache(whole: bytearray = whole) -> None:
            with open(scratch / "cached", "ab", buffering=0) as file:
                file.write(whole)

        memory = median_seconds(copy)
        for codec in CODECS:
            name = f"append {value_bytes} B, {codec.name.lower()}"
            disk, synced = median_seconds(write), _append_seconds(table, codec, "commit", scratch)
            page, free = median_seconds(cache), _append_seconds(table, codec, "none", scratch)
            for leftover in scratch.iterdir():  # dirty pages of the last codec slow the next
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            figure = f"{records / synced / 1e6:.2f} M records/s, {size / synced / 1e6:.0f} MB/s"
            if codec is Codec.NONE:
                yield Row(name, figure, disk / synced, "write + fdatasync", ">= 0.85")
                loose = f"{size / free / 1e6:.0f} MB/s"
                yield Row(f"{name}, flush=none", loose, page / free, "write to page cache")
                yield Row(f"{name}, flush=none", loose, memory / free, "memory copy", ">= 0.85")
            else:
                alone = median_seconds(
                    lambda codec=codec, areas=areas: [compress(codec, a) for a in areas]
                )
                figure = f"{records / free / 1e6:.2f} M records/s, {size / free / 1e6:.0f} MB/s"
                yield Row(f"{name}, flush=none", figure, alone / free, "the codec alone", ">= 0.85")
            yield _read_row(table, codec, scratch, size, value_bytes)


def _read_row(table: pa.Table, codec: Codec, scratch: Path, size: int, value_bytes: int) -> Row:
    path = scratch / "read"
    with _log(path, "none") as log:
        log.create_topic("t")
        log.append("t", table, framing=Framing(codec=codec, batch_size=BATCH_BYTES))
        seconds = median_seconds(lambda: sum(b.num_rows for b in log.read("t")))
    shutil.rmtree(path)
    rate = f"{table.num_rows / seconds / 1e6:.2f} M records/s, {size / seconds / 1e6:.0f} MB/s"
    return Row(f"read {value_bytes} B, {codec.name.lower()}", rate)


def recovery_rows(scratch: Path) -> Iterator[Row]:
    table = sample(1_000_000, 100)
    path = scratch / "recovery"
    with _log(path, "none") as log:
        log.create_topic("t")
        for _ in range(4):
            log.append("t", table, framing=Framing(batch_size=16 << 10))
        end = log.offsets("t")[0][1]
    partition = path / "t-0"
    size = sum(f.stat().st_size for f in partition.glob("*.log"))

    def ours() -> None:
        recover(LOCAL, str(partition), TopicConfig(), system_clock, CommittedState(end=end))

    seconds = median_seconds(ours, rounds=3)
    rate = size / seconds / 1e6
    kafka = _kafka_recovery(partition)
    yield Row(
        "recovery scan, 16 KiB batches",
        f"{rate:.0f} MB/s",
        rate / kafka if kafka else None,
        f"Kafka 4.1: {kafka:.0f} MB/s" if kafka else "no JDK here",
        ">= 4",
    )


def _kafka_recovery(partition: Path) -> float | None:
    try:
        oracle = Oracle()
    except Unavailable as error:
        print(f"(Kafka's own code can't be run here: {error})")
        return None
    with contextlib.closing(oracle):
        runs = [oracle.call("bench_open", dir=str(partition)) for _ in range(3)]
    return max(float(run["bytes"] / run["seconds"] / 1e6) for run in runs)


def lookup_rows(scratch: Path) -> Iterator[Row]:
    with _log(scratch / "lookup", "none") as log:
        log.create_topic("t", config={"internal.segment.bytes": 100_000})
        table = sample(1_000_000, 100)
        log.append("t", table, framing=Framing(batch_size=16 << 10))
        segments = len(reader_of(view_of(log), "t", 0).metadata())
        reader, end = reader_of(view_of(log), "t", 0), log.offsets("t")[0][1]
        random.seed(1)
        picks = [random.randrange(end) for _ in range(3000)]

        def by_offset(at: int) -> None:
            next(iter(reader.read(at, end, columns=["offset"], max_records=1)))

        def by_time(at: int) -> None:
            found = reader.offset_for_time(1_700_000_000_000 + at, 0, end)
            assert found is not None
            assert found[0] == at

        for name, look_up in (("offset", by_offset), ("time", by_time)):
            for at in picks[:1000]:
                look_up(at)
            times = []
            for at in picks:
                start = time.perf_counter()
                look_up(at)
                times.append((time.perf_counter() - start) * 1000)
            p50, p99 = np.percentile(times, [50, 99])
            yield Row(
                f"look-up by {name}, {segments} segments",
                f"p50 {p50:.3f} ms, p99 {p99:.3f} ms",
                target="p99 < 1 ms",
            )


def commit_rows(scratch: Path) -> Iterator[Row]:
    table = sample(1000, 100)
    with _log(scratch / "small", "commit") as log:
        log.create_topic("t")
        times = []
        for _ in range(200):
            start = time.perf_counter()
            log.append("t", table, partition=0)
            times.append((time.perf_counter() - start) * 1000)
    probe = scratch / "probe"
    with open(probe, "wb", buffering=0) as file:
        syncs = []
        for _ in range(200):
            file.write(b"x" * 4096)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            syncs.append((time.perf_counter() - start) * 1000)
    p50, p99 = np.percentile(times, [50, 99])
    one = float(np.median(syncs))
    yield Row(
        "commit of 1,000 records", f"p50 {p50:.2f} ms, p99 {p99:.2f} ms", p50 / one, "one fdatasync"
    )


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="sparklog-bench-", dir=os.environ.get("BENCH_DIR")))
    try:
        print_rows("Engine, one core", append_rows(scratch))
        print_rows("Recovery", recovery_rows(scratch))
        print_rows("Look-ups", lookup_rows(scratch))
        print_rows("Commits", commit_rows(scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
