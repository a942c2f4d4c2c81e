"""What the knobs cost and bring, side by side: the tables of docs/sizing.md. One process, one disk.

    make bench BENCH_ARGS=tuning
    make bench BENCH_ARGS="tuning --only codec"

500,000 records of 16 B keys and 100 B values, 61 MB, that compress about as JSON does; one
partition, flush=commit. Times are medians; a look-up is one record at a random offset, by a reader
that is open and has the files in the page cache.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import sparklog
from sparklog.format.compression import Codec
from sparklog.storage.staging import Framing
from tests.benchmarks.table import sample

RECORDS: Final = 500_000
VALUE_BYTES: Final = 100
COMMITS: Final = 20
ROUNDS: Final = 3
LOOKUPS: Final = 200
KIB, MIB = 1 << 10, 1 << 20
BATCH_SIZE: Final = 256 * KIB  # the sink's default


@dataclass(frozen=True, slots=True)
class Measured:
    """A log that was written, read and looked into."""

    append_s: float
    read_s: float
    by_offset_ms: float
    by_time_ms: float
    open_ms: float
    log_bytes: int
    index_bytes: int
    segments: int

    @property
    def append(self) -> str:
        return f"{RECORDS / self.append_s / 1e6:.2f} M/s"

    @property
    def read(self) -> str:
        return f"{RECORDS / self.read_s / 1e6:.2f} M/s"


def measure(table: pa.Table, framing: Framing, config: dict[str, object]) -> Measured:
    """Write the table in 20 commits, a few times over; then read the last one in all ways."""
    directory = Path(tempfile.mkdtemp(prefix="sparklog-tuning-"))
    try:
        appends = []
        for turn in range(ROUNDS):
            path = directory / str(turn)
            begun = time.perf_counter()
            with sparklog.open(path, "rw") as log:
                log.create_topic("t", config={"retention.ms": -1, **config})
                step = RECORDS // COMMITS
                for at in range(0, RECORDS, step):
                    log.append("t", table.slice(at, step), partition=0, framing=framing)
            appends.append(time.perf_counter() - begun)
        return _looked_into(path, statistics.median(appends))
    finally:
        shutil.rmtree(directory)


def _looked_into(path: Path, append_s: float) -> Measured:
    files = list((path / "t-0").iterdir())
    sizes: dict[str, int] = {}
    for file in files:
        sizes[file.suffix] = sizes.get(file.suffix, 0) + file.stat().st_size
    opens = [_seconds(lambda: sparklog.open(path).close()) for _ in range(ROUNDS)]
    with sparklog.open(path) as log:
        reads = [_seconds(lambda: sum(b.num_rows for b in log.read("t"))) for _ in range(ROUNDS)]
        chosen = random.Random(7).sample(range(RECORDS), LOOKUPS)

        def one(offset: int) -> None:
            found = log.read("t", start={0: offset}, end={0: offset + 1}, columns=["offset"])
            assert found.read_all().num_rows == 1

        def at_time(offset: int) -> None:
            when = datetime.fromtimestamp((1_700_000_000_000 + offset) / 1000, UTC)
            assert log.offsets_for_times("t", when) == {0: offset}

        by_offset = [_seconds(lambda o=offset: one(o)) for offset in chosen]
        by_time = [_seconds(lambda o=offset: at_time(o)) for offset in chosen]
    return Measured(
        append_s=append_s,
        read_s=statistics.median(reads),
        by_offset_ms=statistics.median(by_offset) * 1000,
        by_time_ms=statistics.median(by_time) * 1000,
        open_ms=statistics.median(opens) * 1000,
        log_bytes=sizes[".log"],
        index_bytes=sizes[".index"] + sizes[".timeindex"],
        segments=sum(file.suffix == ".log" for file in files),
    )


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


Line = tuple[str, ...]


def index_interval(table: pa.Table) -> Iterator[Line]:
    yield "index.interval.bytes", "indexes", "look-up by offset", "by time", "append"
    for interval in (0, 4 * KIB, 64 * KIB, MIB):
        made = measure(table, Framing(batch_size=4 * KIB), {"index.interval.bytes": interval})
        yield (
            f"{interval:,}", f"{made.index_bytes / KIB:,.0f} KiB", f"{made.by_offset_ms:.2f} ms",
            f"{made.by_time_ms:.2f} ms", made.append,
        )  # fmt: skip


def batch_size(table: pa.Table) -> Iterator[Line]:
    yield "batch.size", "log (lz4)", "append", "read", "look-up by offset"
    for size in (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1000 * KIB):
        made = measure(table, Framing(batch_size=size, codec=Codec.LZ4), {})
        yield (
            f"{size:,}", f"{made.log_bytes / 1e6:.1f} MB", made.append, made.read,
            f"{made.by_offset_ms:.2f} ms",
        )  # fmt: skip


def segment_bytes(table: pa.Table) -> Iterator[Line]:
    yield "segment.bytes", "segments", "append", "read", "opening to read", "look-up by time"
    for size in (MIB, 8 * MIB, 64 * MIB, 1024 * MIB):
        made = measure(table, Framing(batch_size=BATCH_SIZE), {"segment.bytes": size})
        yield (
            f"{size:,}", str(made.segments), made.append, made.read, f"{made.open_ms:.1f} ms",
            f"{made.by_time_ms:.2f} ms",
        )  # fmt: skip


def codec(table: pa.Table) -> Iterator[Line]:
    yield "compression.type", "log", "of uncompressed", "append", "read"
    plain = 0
    for kind in (Codec.NONE, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP):
        made = measure(table, Framing(batch_size=BATCH_SIZE, codec=kind), {})
        plain = plain or made.log_bytes
        yield (
            kind.name.lower(), f"{made.log_bytes / 1e6:.1f} MB",
            f"{made.log_bytes / plain:.0%}", made.append, made.read,
        )  # fmt: skip


SECTIONS: dict[str, Callable[[Any], Iterable[Line]]] = {
    "index.interval.bytes": index_interval,
    "batch.size": batch_size,
    "segment.bytes": segment_bytes,
    "codec": codec,
}


def print_table(title: str, lines: Iterable[Line]) -> None:
    """Print a Markdown table, each line as it comes; the first one is the head."""
    print(f"\n## {title}\n")
    for number, line in enumerate(lines):
        print(f"| {' | '.join(line)} |", flush=True)
        if not number:
            print("|" + "--|" * len(line))


def main() -> None:
    parser = argparse.ArgumentParser(description="What the knobs cost and bring.")
    parser.add_argument("--only", choices=list(SECTIONS), help="just this one")
    given = parser.parse_args()
    table = sample(RECORDS, VALUE_BYTES)
    for name, lines in SECTIONS.items():
        if given.only in (None, name):
            print_table(name, lines(table))


if __name__ == "__main__":
    main()
