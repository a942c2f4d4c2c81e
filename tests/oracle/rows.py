"""Rows with everything that a record can hold, and how they go in and come out."""

import pyarrow as pa

CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BASE_MS = 1_750_000_000_000
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def make(count: int) -> list[Row]:
    """Make records with nulls, empties, repeated headers, big values and times out of order."""
    rows: list[Row] = []
    for i in range(count):
        key = (None, b"", b"k%d" % (i % 17))[min(i % 7, 2)]
        value = (b"v%06d" % i) * (1 + 600 * (i % 97 == 0))
        headers: list[tuple[str, bytes | None]] = [("h", b"%d" % i), ("h", b"")][: i % 3]
        headers += [("n", None)] if i % 5 == 0 else []
        rows.append((key, None if i % 11 == 0 else value, headers, BASE_MS + (i * 37) % 1009))
    return rows


def table(rows: list[Row]) -> pa.Table:
    """Turn rows into what `Log.append` takes."""
    headers = [[{"key": k, "value": v} for k, v in r[2]] for r in rows]
    return pa.table(
        {
            "key": pa.array([r[0] for r in rows], pa.binary()),
            "value": pa.array([r[1] for r in rows], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array([r[3] for r in rows], pa.timestamp("ms", tz="UTC")),
        }
    )


def from_table(read: pa.Table) -> list[Row]:
    """Turn what `Log.read` gives into rows."""
    times = read["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    headers = [[(h["key"], h["value"]) for h in row] for row in read["headers"].to_pylist()]
    keys, values = read["key"].to_pylist(), read["value"].to_pylist()
    return list(zip(keys, values, headers, times, strict=True))
