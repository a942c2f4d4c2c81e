"""The latest value of each key: a year of flights, compacted to where each plane is now.

    $ python examples/latest_per_key.py
    334,264 flights of 4,043 planes, 7.1 MB
    compacted: 16,921 records, 0.4 MB
    the same 4,043 planes; N14228 is in DEN

A topic with cleanup.policy=compact keeps the last record of each key, and all of the active
segment. A reader that takes the last of each key therefore has the table, at any moment, and a
stream that follows goes on from there. Compaction only makes it short.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from quickstart import flights

import sparklog
from sparklog.service import Service

CONFIG = {"cleanup.policy": "compact", "segment.bytes": 4 << 20, "min.cleanable.dirty.ratio": 0.01}


def main(path: Path) -> None:
    table = flights()
    table = table.filter(pc.is_valid(table["tailnum"]))
    rows = pa.table({"key": table["tailnum"], "value": table["dest"],
                     "timestamp": table["departure"].cast(pa.timestamp("ms", "UTC"))})  # fmt: skip
    with sparklog.open(path, "rw") as log:
        log.create_topic("planes", config=CONFIG)
        log.append("planes", rows)
        before = latest(log)
        print(f"{rows.num_rows:,} flights of {len(before):,} planes, {size(path):.1f} MB")
        with Service(path) as service:
            service.run_once()
        kept = log.read("planes", columns=["offset"]).read_all().num_rows
        print(f"compacted: {kept:,} records, {size(path):.1f} MB")
        after = latest(log)
    assert after.equals(before)
    wanted = rows.group_by("key", use_threads=False).aggregate([("value", "last")])
    assert dict(zip(*map(pa.ChunkedArray.to_pylist, wanted.columns), strict=True)) == {
        row["key"].decode(): row["value_last"].decode() for row in after.to_pylist()
    }
    (plane,) = after.filter(pc.equal(after["key"], b"N14228")).to_pylist()
    print(f"the same {len(after):,} planes; N14228 is in {plane['value_last'].decode()}")


def latest(log: sparklog.Log) -> pa.Table:
    """The last record of each key: columns key, value_last."""
    rows = log.read("planes", columns=["key", "value"]).read_all()
    found = rows.group_by("key", use_threads=False).aggregate([("value", "last")])
    return found.sort_by("key")


def size(path: Path) -> float:
    return sum(file.stat().st_size for file in path.glob("planes-*/*.log")) / 1e6


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sparklog-") as directory:
        main(Path(directory) / "log")
