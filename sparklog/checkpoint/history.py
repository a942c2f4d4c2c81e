"""History of a query: a row for each batch that its checkpoint still has."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.checkpoint_kind import CheckpointKind
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.metadata_marker import MARKER_START
from sparklog.checkpoint.query_sink import query_name
from sparklog.checkpoint.spark_files.metadata_logs import document_of, rows_between
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.html import foreign, table

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_SCHEMA: Final = pa.schema(
    [
        ("batch", pa.int64()),
        ("planned", pa.timestamp("ms", "UTC")),
        ("committed", pa.timestamp("ms", "UTC")),
        ("watermark", pa.timestamp("ms", "UTC")),
        ("sources", pa.map_(pa.string(), pa.string())),
        ("rows", pa.map_(pa.string(), pa.int64())),
        ("state_version", pa.int64()),
        ("can_go_back", pa.bool_()),
        ("obstacle", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A micro-batch of a checkpoint.

    Attributes:
        batch: The number of the batch.
        planned_ms: When the batch was planned, in milliseconds since the epoch.
        committed_ms: When the batch was committed; None for an uncommitted batch.
        watermark_ms: The event-time watermark, 0 without a watermark.
        sources: {source: offset that the batch reads up to, as JSON}; None without data so far.
        rows: {source: number of rows}, if the offsets show it; offsets of topics count as rows.
        state_version: The version of every state store after the batch, None without state.
        obstacle: Why a fork or reset can't go back to this batch, or None.

    Examples:
        >>> from sparklog.checkpoint import history
        >>> last = history("checkpoint").batches[-1]
        >>> last.batch, last.committed_ms is not None, last.obstacle
        (2, True, None)
    """

    batch: int
    planned_ms: int | None
    committed_ms: int | None
    watermark_ms: int
    sources: Mapping[str, Any]
    rows: Mapping[str, int | None]
    state_version: int | None
    obstacle: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "batch": self.batch,
            "planned": _text(self.planned_ms),
            "committed": _text(self.committed_ms),
            "watermark": _text(self.watermark_ms or None),
            "sources": dict(self.sources),
            "rows": dict(self.rows),
            "state_version": self.state_version,
            "can_go_back": self.obstacle is None,
            "obstacle": self.obstacle,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The batches of a checkpoint, in order.

    Attributes:
        path: The checkpoint.
        query_id: The query's id, if known.
        kind: "files", "log-backed" or "in runs": how the checkpoint is stored.
        batches: The batches, oldest first.
        query_name: The query's name, if known.

    Examples:
        >>> from sparklog.checkpoint import history
        >>> [row.batch for row in history("checkpoint").batches]
        [0, 1, 2]
    """

    path: str
    query_id: str | None
    kind: CheckpointKind
    batches: list[BatchRow] = field(default_factory=list)
    query_name: str | None = None

    @property
    def is_log_backed(self) -> bool:
        """Whether the checkpoint is stored as a log dir."""
        return self.kind is CheckpointKind.LOG_BACKED

    @property
    def query(self) -> str:
        """The query's name, if known, and its id."""
        known = self.query_id or "unknown"
        return known if self.query_name is None else f"{self.query_name} ({known})"

    def table(self) -> pa.Table:
        """Return the batches as a table, with offsets as JSON text."""
        rows = [
            {
                **row.to_dict(),
                "planned": row.planned_ms,
                "committed": row.committed_ms,
                "watermark": row.watermark_ms or None,
                "sources": [(name, json.dumps(value)) for name, value in row.sources.items()],
                "rows": list(row.rows.items()),
            }
            for row in self.batches
        ]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def _repr_html_(self) -> str:
        """Return a table for notebooks, newest batches first."""
        caption = f"{self.path} ({self.kind}), query {self.query}"
        columns = ("batch", "planned", "committed", "watermark", "rows", "go back behind it")
        rows = [
            (
                row.batch,
                _text(row.planned_ms),
                _text(row.committed_ms),
                _text(row.watermark_ms or None),
                ", ".join("?" if n is None else str(n) for n in row.rows.values()),
                "yes" if row.obstacle is None else foreign(f"no: {row.obstacle}"),
            )
            for row in reversed(self.batches)
        ]
        return table(foreign(caption), columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return {
            "path": self.path,
            "query_id": self.query_id,
            "query_name": self.query_name,
            "kind": str(self.kind),
            "log_backed": self.is_log_backed,
            "batches": [row.to_dict() for row in self.batches],
        }


def history(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
) -> History:
    """List the batches of a checkpoint; also of a running query.

    Args:
        path: The checkpoint: a local path, or the URL of a checkpoint that Spark keeps in a bucket.
        storage_options: Options of fsspec for a checkpoint in a bucket.
        fs: The file system of the checkpoint; for tests.

    Returns:
        A row for each batch with offsets or a commit, oldest first: times, source offsets, row
        counts if offsets show them, state version, and whether a fork or reset can go back to it.
        `History.table` returns the same as Arrow.

    Raises:
        InvalidRequestError: There is no checkpoint.
        DataCorruptionError: Its log dir, or the offsets or commit of a batch, is damaged; see
            `verify`.
        StorageUnavailableError: The disk fails, or the store does not answer.

    Cost:
        Reads offsets and commits; for RocksDB a zip, and in format 2 also a changelog, once each.

    Examples:
        >>> from sparklog.checkpoint import history
        >>> history("checkpoint").table().num_rows
        3
    """
    checkpoint = Checkpoint.open(path, fs, storage_options=storage_options or {})
    batches = Batches(checkpoint)
    return History(
        path=checkpoint.path,
        query_id=query_id(checkpoint),
        query_name=query_name(checkpoint),
        kind=checkpoint.kind,
        batches=list(_rows(batches)),
    )


def query_id(checkpoint: Checkpoint) -> str | None:
    """Return the id of the checkpoint's query, if the query ever wrote an id.

    Raises:
        DataCorruptionError: `metadata` isn't in Spark's format.
    """
    try:
        data = checkpoint.read("metadata")
        if data.startswith(MARKER_START):  # the record is missing
            return None
    except FileNotFoundError:
        return None
    try:
        return str(json.loads(data)["id"])
    except (ValueError, KeyError, TypeError) as error:
        where, position = checkpoint.locate("metadata")
        raise DataCorruptionError(
            f"the file must contain {{'id': ...}}, but can't be read: {error}",
            path=where,
            position=position,
        ) from error


def writer_name(checkpoint: Checkpoint, writer: str | None) -> str:
    """Return the query's name in the sink's log: `writer`, or the query's id.

    Raises:
        InvalidRequestError: The checkpoint has no id.
        DataCorruptionError: `metadata` isn't in Spark's format.
    """
    name = writer or query_id(checkpoint)
    if name is None:
        raise InvalidRequestError(
            f"{checkpoint.path} has no query id: pass the writer (option --writer, writer=)",
            path=checkpoint.path,
        )
    return name


def _rows(batches: Batches) -> Iterator[BatchRow]:
    for batch in sorted({*batches.planned, *batches.committed}):
        with contextlib.suppress(FileNotFoundError):  # Spark removed it since it was listed
            yield _row(batches, batch)


def _row(batches: Batches, batch: int) -> BatchRow:
    planned = batches.offsets(batch) if batch in batches.planned else None
    previous = batches.previous_plan(batch) if batch else None
    before = None if previous is None else batches.offsets(previous)
    sources = {} if planned is None else planned.sources
    rows = {
        name: _count(before.sources.get(name) if before is not None else None, text)
        for name, text in sources.items()
    }
    committed = batch in batches.committed
    stat = batches.checkpoint.stat(f"commits/{batch}") if committed else None
    return BatchRow(
        batch=batch,
        planned_ms=None if planned is None else planned.timestamp_ms,
        committed_ms=None if stat is None else stat.mtime_ms,
        watermark_ms=0 if planned is None else planned.watermark_ms,
        sources={name: document_of(text) for name, text in sources.items()},
        rows=rows,
        state_version=batch + 1 if committed and batches.stores else None,
        obstacle=batches.obstacle(batch),
    )


def _count(start: str | None, end: str | None) -> int | None:
    return 0 if start == end and end is not None else rows_between(start, end)


def _text(when_ms: int | None) -> str | None:
    if when_ms is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=when_ms)).isoformat(timespec="milliseconds")
    except OverflowError:  # an event time, and so the watermark, may be any number
        return f"{when_ms} ms"
