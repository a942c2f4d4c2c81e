"""The ledger as a table: which commit wrote which offsets."""

from typing import Any, Final

import pyarrow as pa

from sparklog.storage.commits import FollowedLedger
from sparklog.storage.ledger_records import (
    AppendRecord,
    CommitRecord,
    ResetRecord,
)

SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("kind", pa.string()),
        ("writer", pa.string()),
        ("query", pa.string()),
        ("batch", pa.int64()),
        ("fingerprint", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("end", pa.int64()),
    ]
)


def commits_table(ledger: FollowedLedger, writer: str | None) -> pa.Table:
    """Return the table of `Log.commits`: commits, appends and resets in the ledger, oldest first.

    With `writer`, only the commits and resets of this writer are returned.
    """
    rows: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for offset, record in ledger.retained():
        common: dict[str, Any] = {"offset": offset, "time": record.time_ms, "kind": record.kind}
        if isinstance(record, ResetRecord):
            lasts = record.last_batches.items()
            resets = [(w, last) for w, last in lasts if writer in (None, w)]
            rows += [{**common, "writer": w, "batch": last} for w, last in resets]
        elif isinstance(record, CommitRecord):
            if writer not in (None, record.writer):
                continue
            common |= {"writer": record.writer, "batch": record.batch}
            common["fingerprint"] = record.fingerprint
            if record.origin is not None and record.origin.name:
                names[record.writer] = record.origin.name
            rows += [{**common, **span} for span in _ranges(record)]
        elif isinstance(record, AppendRecord) and writer is None:
            rows += [{**common, **span} for span in _ranges(record)]
    for row in rows:
        row["query"] = names.get(row.get("writer", ""))
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _ranges(record: AppendRecord) -> list[dict[str, Any]]:
    """Return the topic, partition, first and end columns of a commit's rows.

    There is a row per partition. A commit without records has one row without these columns.
    """
    return [
        {"topic": topic, "partition": partition, "first": first, "end": end}
        for (topic, partition), (first, end) in record.ends.items()
    ] or [{}]
