"""A range of a topic into a Delta table, each record once.

How far each partition has got is in the table itself, in the transaction identifiers that the
Delta protocol has for this: one per partition, with the end offset as its version, in the same
commit as the records. So an export that is repeated goes on where the last commit ended, and two
at once can't both commit. Source: Delta's PROTOCOL, "Transaction Identifiers".
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError, SparklogError, StorageUnavailableError
from sparklog.extras import needed
from sparklog.log.fetch import schema_of
from sparklog.log.log import Log
from sparklog.log.positions import Position
from sparklog.progress import Progress, shows_progress
from sparklog.tools.moving.exporting import (
    TABLE_COLUMNS,
    Exported,
    Meter,
    pieces,
    planned,
    resumed,
)


@shows_progress("exporting")
def export_delta(
    log: Log,
    topic: str,
    uri: str | os.PathLike[str],
    *,
    start: Position = "earliest",
    end: Position = "latest",
    isolation: str = "read_committed",
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Append the records of [start, end) to a Delta table, as one commit; columns of `Log.read`.

    The table is made where it isn't there. What an export of this very topic (by its id) has
    committed before isn't written again; `start` counts for partitions that it has not.
    Raises: InvalidRequestError: deltalake is missing, the table has other columns;
        StorageUnavailableError: the store failed, or somebody else exports at the same time;
        OffsetOutOfRangeError; as `Log.read`.
    """
    library = _library()
    began = monotonic_ms()
    uri = os.fspath(uri)
    done = Exported(topic=topic, to=uri)
    first, last = planned(log, topic, start, end, isolation)
    app = f"sparklog/{log.view.topic_id(topic, min(first))}/{topic}"
    options = dict(storage_options or {})
    feed: _Feed | None = None
    try:
        table = (
            library.DeltaTable(uri, storage_options=options)
            if library.DeltaTable.is_deltatable(uri, options)
            else None
        )
        at = resumed(log, topic, start, first, last, _ends(table, app, first), uri)
        spans = {p: (at[p], last[p]) for p in at if at[p] < last[p]}
        if spans:
            feed = _Feed(log, topic, spans, isolation, Meter(at, last, progress))
            library.write_deltalake(
                uri if table is None else table,
                pa.RecordBatchReader.from_batches(schema_of(TABLE_COLUMNS), feed.batches()),
                mode="append",
                storage_options=options or None,
                commit_properties=library.CommitProperties(
                    custom_metadata={"sparklog.topic": topic, "sparklog.offsets": str(spans)},
                    app_transactions=[
                        library.Transaction(app_id=f"{app}-{p}", version=upto)
                        for p, (_, upto) in spans.items()
                    ],
                ),
            )
            done.records, done.offsets, done.files = feed.records, spans, 1
    except SparklogError:
        raise
    except Exception as error:
        if feed is not None and feed.error is not None:  # ours, which came out as another
            raise feed.error from None
        raise _translated(library, uri, error) from error
    done.took_ms = int(monotonic_ms() - began)
    return done


def _translated(library: Any, uri: str, error: Exception) -> Exception:
    if isinstance(error, library.exceptions.SchemaMismatchError):
        return InvalidRequestError(f"{uri} has other columns than records have: {error}")
    if isinstance(error, library.exceptions.DeltaError | OSError):
        return StorageUnavailableError(f"{uri}: {error}; nothing was committed")
    return error


class _Feed:
    """The batches of all partitions, and what went wrong as they were read."""

    def __init__(
        self,
        log: Log,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        isolation: str,
        meter: Meter,
    ) -> None:
        self._given = log, topic, spans, isolation
        self._meter = meter
        self.records = 0
        self.error: SparklogError | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        log, topic, spans, isolation = self._given
        try:
            for p, span in spans.items():
                for rows in pieces(
                    log, topic, p, *span, isolation=isolation, columns=TABLE_COLUMNS
                ):
                    self.records += rows.num_rows
                    yield rows
                self._meter.add(span[1] - span[0])
        except SparklogError as error:
            self.error = error
            raise


def _ends(table: Any | None, app: str, partitions: Mapping[int, int]) -> dict[int, int]:
    if table is None:
        return {}
    known = {p: table.transaction_version(f"{app}-{p}") for p in partitions}
    return {p: offset for p, offset in known.items() if offset is not None}


def _library() -> Any:
    with needed(InvalidRequestError):
        import deltalake
        import deltalake.exceptions
    return deltalake
