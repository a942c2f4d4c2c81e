"""The ledger as a table: which commit wrote which offsets."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sparklog.errors import OffsetOutOfRangeError
from sparklog.log.fetch import read_partition, schema_of
from sparklog.log.partition_reader import reader_of
from sparklog.logdir.ledger import LEDGER, LEDGER_TOPIC, parse_rows
from sparklog.storage.log_state import Record
from sparklog.storage.view import View

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
    """Return the commits, appends and resets that the ledger still holds, oldest first."""
    rows: list[dict[str, Any]] = []
    for offset, record in _records(view):
        common = {"offset": offset, "time": record["time"], "kind": record["kind"]}
        if record["kind"] == "reset":
            rows += [{**common, **reset} for reset in _resets(record, writer)]
        elif record["kind"] in ("commit", "append") and writer in (None, record.get("writer")):
            common |= {name: record.get(name) for name in ("writer", "batch")}
            rows += [{**common, "fingerprint": record.get("fp"), **span} for span in _spans(record)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _spans(record: Record) -> list[dict[str, Any]]:
    """A row for each partition; one without any for a commit of nothing."""
    return [
        {"topic": topic, "partition": int(p), "first": first, "end": last}
        for topic, by_partition in record["ends"].items()
        for p, (first, last) in by_partition.items()
    ] or [{}]


def _resets(record: Record, writer: str | None) -> list[dict[str, Any]]:
    """A row for each writer, with the last batch that stays."""
    if "writers" in record:
        lasts = {w: -1 if last is None else last[0] for w, last in record["writers"].items()}
    else:
        lasts = {record["writer"]: record["batch"] - 1}
    return [{"writer": w, "batch": last} for w, last in lasts.items() if writer in (None, w)]


def _records(view: View) -> Iterator[tuple[int, Record]]:
    """Yield the ledger's records up to now; old ones may expire while they are read."""
    reader_of(view, *LEDGER).refresh()  # what an earlier look kept open may be gone by now
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
