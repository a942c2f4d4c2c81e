"""`bootstrap`: a new checkpoint with state as if the query had read a history.

The query itself reads the history, in a checkpoint beside the target and with a sink that drops the
rows. The state and the watermark of this checkpoint become those of the target.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint, batch_numbers, own_path
from sparklog.checkpoint.log_backed.layout import RUNS_SCHEME
from sparklog.checkpoint.spark_files.checksums import hadoop_name
from sparklog.checkpoint.spark_files.metadata_logs import without_offsets
from sparklog.checkpoint.staged_checkpoint import FORK, staged_checkpoint
from sparklog.checkpoint.stored_copies import spark_url
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.paths import store_url
from sparklog.logdir.staged_directory import remove_all
from sparklog.spark_errors import brief
from sparklog.state.plain_copy import check_free, edit_metadata_log, plain_copy, reachable_batch
from sparklog.state.tables import StateTables
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]
Query = Callable[..., DataFrame]
_POLL_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrapped:
    """The result of `bootstrap`.

    Attributes:
        path: The new checkpoint.
        batch: The last micro-batch of the history; the query continues after it.
        rows: The rows of each stateful operator's state.
        watermark_ms: The event-time watermark, in milliseconds since the epoch; or 0.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.checkpoint import bootstrap
        >>> history = spark.createDataFrame([("N1",), ("N2",), ("N1",)], "flight string")
        >>> made = bootstrap("seeded", lambda rows: rows.dropDuplicates(), from_=history)
        >>> made.rows
        [2]
    """

    path: str
    batch: int
    rows: list[int]
    watermark_ms: int
    took_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = ", ".join(map(str, self.rows))
        return (
            f"{self.path} has the state of the history ({rows} rows); its query continues with "
            f"batch {self.batch + 1}"
        )


def bootstrap(
    target: Path,
    query: DataFrame | Query,
    *,
    from_: DataFrame | Sequence[DataFrame] | None = None,
    output_mode: str = "append",
    scratch: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Bootstrapped:
    """Create a checkpoint with the state that a streaming query has after a history.

    The query runs over the history on this session, with its settings, and its output is dropped.
    Then start the query with `target` as checkpointLocation: its first micro-batch continues with
    the state and the watermark of the history.

    With `from_`, the history is another input than the query's own, such as a table. The query's
    sources then begin at their own starting offsets (`startingOffsets` and the like), so these must
    be where the history ends. Without `from_`, the history is what the query's own sources have
    now, from their starting offsets on, and the sources continue where it ends.

    Args:
        target: The new checkpoint: a local path, or a URL.
        query: Without `from_` the streaming DataFrame, unstarted. With `from_` a function, which
            gets a streaming DataFrame for each source, in place of the query's own, and returns the
            streaming DataFrame. State must not depend on anything else that differs from the query.
        from_: The history of the query's source, or a list with the history of each source. The
            rows of a batch DataFrame are a single micro-batch, so no row is late. A streaming
            DataFrame is read in its own micro-batches.
        output_mode: The output mode of the query: append, update or complete.
        scratch: A directory of the driver for the temporary files of a target in a bucket; by
            default the directory of the system.
        storage_options: Options of fsspec for a target in a bucket.
        fs: The file system of a local target; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: `target` exists, the query can't be started or fails, or it has no
            state.
        StorageUnavailableError: The disk or the store fails. A failed call leaves no new
            checkpoint. A killed call leaves a directory, which the next call for the same target
            removes, or in a bucket objects below `<target>.bootstrap-<id>/`.

    Cost:
        The cost of the query over the history. The state is copied once by the driver if the target
        is in a bucket, and renamed on a disk. A batch DataFrame is computed once for each use in
        the query.

    Examples:
        >>> from sparklog.checkpoint import bootstrap
        >>> def count(rows):
        ...     return rows.groupBy("flight").count()
        >>> history = spark.createDataFrame([("N1",), ("N2",), ("N1",)], "flight string")
        >>> made = bootstrap("seeded", count, from_=history, output_mode="update")
        >>> print(made)
        /.../seeded has the state of the history (2 rows); its query continues with batch 1

        Start the query with this checkpoint; its sources continue where the history ends:

        >>> live = spark.readStream.format("sparklog").option("startingOffsets", "latest")
        >>> flights = live.option("subscribe", "flights").load(log.path)
        >>> query = count(flights.selectExpr("cast(key AS string) AS flight")).writeStream
        >>> query = query.outputMode("update").option("checkpointLocation", made.path)
    """
    watch = stopwatch()
    options = storage_options or {}
    check_free(target, fs, options)
    with contextlib.ExitStack() as stack:
        with (
            _over_history(query, from_) as frame,
            _place_beside(target, fs, options) as (location, path),
        ):
            progress = run_query(frame, location, output_mode, availableNow=True)
            batches = Batches(Checkpoint.open(path, fs, storage_options=options))
            if progress is None or not batches.committed:
                raise InvalidRequestError("the history is empty: the query had nothing to read")
            if not batches.operators:
                raise InvalidRequestError("the query keeps no state, so it needs no bootstrap")
            batch = reachable_batch(batches, None)
            watermark_ms = batches.commit(batch).next_watermark_ms
            copying = plain_copy(
                batches, batch, target, scratch=scratch, storage_options=options, fs=fs, clock=clock
            )
            copy = stack.enter_context(copying)
            if from_ is not None:
                _forget_sources(copy.checkpoint, batch)
        # The place of the history is removed by now, so no kill leaves it beside a new checkpoint.
        copy.publish()
    return Bootstrapped(
        path=copy.target,
        batch=batch,
        rows=[each["numRowsTotal"] for each in progress["stateOperators"]],
        watermark_ms=watermark_ms,
        took_ms=watch(),
    )


@contextlib.contextmanager
def _over_history(
    query: DataFrame | Query, from_: DataFrame | Sequence[DataFrame] | None
) -> Iterator[DataFrame]:
    """Yield the streaming DataFrame that reads the history.

    Raises:
        InvalidRequestError: The arguments don't belong together.
    """
    if from_ is None:
        if not isinstance(query, DataFrame) or not query.isStreaming:
            raise InvalidRequestError(
                "without from_, query must be a streaming DataFrame that reads the history"
            )
        yield query
        return
    if not callable(query):
        raise InvalidRequestError(
            "with from_, query must be a function that gets streaming DataFrames and returns one"
        )
    histories = [from_] if isinstance(from_, DataFrame) else list(from_)
    if not histories:
        raise InvalidRequestError("from_ is an empty list, so there is no history")
    for each in histories:
        if not isinstance(each, DataFrame):
            raise InvalidRequestError(f"from_ must have DataFrames; got {type(each).__name__}")
    with contextlib.ExitStack() as stack:
        streams = [
            each
            if each.isStreaming
            else stack.enter_context(StateTables(each.sparkSession).streamed(each))
            for each in histories
        ]
        found = query(*streams)
        if not isinstance(found, DataFrame) or not found.isStreaming:
            raise InvalidRequestError(
                "the function of query must return a streaming DataFrame, made from the DataFrames "
                "that it gets"
            )
        yield found


@contextlib.contextmanager
def _place_beside(
    target: Path, fs: FileSystem, options: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield a place beside the target, by Spark's name and by ours; it is removed at the end."""
    url = store_url(target)
    if url is None:
        with staged_checkpoint(fs, own_path(target), FORK) as staged:
            path = os.path.join(staged.directory, "history")
            yield path, path
        return
    beside = f"{url}.bootstrap-{uuid.uuid4()}"
    try:
        yield spark_url(beside).removeprefix(RUNS_SCHEME), beside
    finally:
        with contextlib.suppress(SparklogError):  # an error of the query is worth more
            store = open_store(beside, options)
            store.delete([listed.name for listed in store.list()])


def run_query(
    query: DataFrame, location: str, output_mode: str, **trigger: bool
) -> Mapping[str, Any] | None:
    """Run a query until it has read what its trigger gives it; return its last progress.

    Raises:
        InvalidRequestError: The query can't be started, or fails.
    """
    writer = query.writeStream.format("noop").option("checkpointLocation", location)
    try:
        running = writer.outputMode(output_mode).trigger(**trigger).start()
        try:
            while not running.awaitTermination(_POLL_S) and not _has_read_all(running):
                pass
            return running.lastProgress
        finally:
            running.stop()
    except (PySparkException, Py4JJavaError) as error:  # Py4J's: the file system of the place fails
        raise InvalidRequestError(f"the query can't read the history: {brief(error)}") from error


def _has_read_all(running: StreamingQuery) -> bool:
    """Return True if a query has read everything but continues with micro-batches without rows.

    Timers of processing time make a query do so. Each stateful operator may need one such
    micro-batch, in which the operator receives the watermark.
    """
    recent = running.recentProgress
    idle = [p for p in recent if all(s["startOffset"] == s["endOffset"] for s in p["sources"])]
    return bool(idle) and len(idle) > len(idle[-1]["stateOperators"]) + 1


def _forget_sources(copy: Checkpoint, batch: int) -> None:
    """Remove the history's offsets, so that other sources begin at their starting offsets.

    Spark reads the plan of the batch and the plan before it.
    """
    for directory, kept in (("offsets", (batch - 1, batch)), ("commits", (batch,))):
        for number in batch_numbers(copy.names(directory)):
            path = f"{directory}/{number}"
            if number not in kept:
                remove_all(copy.fs, copy.real(path))
                remove_all(copy.fs, copy.real(hadoop_name(path)))
            elif directory == "offsets":
                edit_metadata_log(copy, path, without_offsets)
    remove_all(copy.fs, copy.real("sources"))
    copy.refresh()
