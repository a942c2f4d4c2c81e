"""The ledger as a table: which commit wrote which offsets."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sparklog.errors import OffsetOutOfRangeError
from sparklog.log.ledger import LEDGER, LEDGER_TOPIC, parse_rows
from sparklog.log.reading import read_partition, schema_of
from sparklog.log.state import Record
from sparklog.log.view import View

SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("kind", pa.string()),
        ("writer", pa.string()),
        ("batch", pa.int64()),
        ("fingerprint", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("end", pa.int64()),
    ]
)


def commits_table(view: View, writer: str | None) -> pa.Table:
    """Return the commits and appends that the ledger still holds, oldest first."""
    rows: list[dict[str, Any]] = []
    for offset, record in _records(view):
        if record["kind"] not in ("commit", "append"):
            continue
        if writer is not None and record.get("writer") != writer:
            continue
        common = {
            "offset": offset,
            "time": record["time"],
            "kind": record["kind"],
            "writer": record.get("writer"),
            "batch": record.get("batch"),
            "fingerprint": record.get("fp"),
        }
        spans: list[tuple[str | None, int | None, int | None, int | None]] = [
            (topic, int(p), first, last)
            for topic, by_partition in record["ends"].items()
            for p, (first, last) in by_partition.items()
        ]
        for topic, p, first, last in spans or [(None, None, None, None)]:
            rows.append({**common, "topic": topic, "partition": p, "first": first, "end": last})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _records(view: View) -> Iterator[tuple[int, Record]]:
    """Yield the ledger's records up to now; old ones may expire while they are read."""
    view.reader(*LEDGER).refresh()  # what an earlier look kept open may be gone by now
    at, end = view.spans([LEDGER])[LEDGER]
    schema = schema_of(["offset", "value"])
    while at < end:
        try:
            for batch in read_partition(view, LEDGER_TOPIC, 0, at, end, schema=schema):
                for at, record in parse_rows(batch):
                    yield at, record
                at += 1
            return
        except OffsetOutOfRangeError as error:
            at = error.start
