"""State as a topic: the changes of each batch in an operator's state, by key, as Arrow.

    from sparklog import checkpoint
    checkpoint.changes("/data/checkpoint", operator=0).read_all()

    batch          int64    the micro-batch
    partition      int32    the state partition
    change         string   "put", "delete", "merge" (a value is appended to the key's list),
                            "delete_range" (all keys from `key` to before `range_end`)
    key, value     struct   by the operator's state schema; value is null when deleted

A store with column families (transformWithState) has two more columns: `column_family` after
`partition`, and `range_end`, of the key's type, at the end. Its key and value are structs with a
struct per family, of which only the row's own family is not null.

A put of a list appears as a put of its first value and a merge of each further value. Source: the
`readChangeFeed` option of Spark's own `statestore` source, with equal results.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from sparklog.checkpoint.change_feed.change_files import ChangeFile, StoreChanges
from sparklog.checkpoint.change_feed.change_reader import ChangeReader
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.spark_files.state_stores import DEFAULT_STORE
from sparklog.errors import OffsetOutOfRangeError
from sparklog.fs import LOCAL, FileSystem


def changes(
    path: str | os.PathLike[str],
    operator: int = 0,
    store: str = DEFAULT_STORE,
    start: int | None = None,
    end: int | None = None,
    *,
    column_family: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
) -> pa.RecordBatchReader:
    """Read the changes of the batches [start, end) in an operator's state; also of a running query.

    Args:
        path: The checkpoint: a local path, or the URL of a checkpoint that Spark keeps in a bucket.
        operator: The number of the operator, as in the directory `state`.
        store: The name of the store, as in the directory `state`; a join has four stores, other
            operators "default".
        start: The first batch; by default the earliest batch with existing changes.
        end: The batch after the last; by default all batches that are committed now.
        column_family: For transformWithState, the name of a state variable: only its changes, with
            key and value as plain structs. Spark's own families start with "$".
        storage_options: Options of fsspec for a checkpoint in a bucket.
        fs: The file system of the checkpoint; for tests.

    Returns:
        A reader with the columns batch, partition, change ("put", "delete", "merge" or
        "delete_range"), key and value, and for column families also column_family and range_end.
        Rows are ordered by batch and partition, and within a partition by time. Values without an
        Arrow type are binary, and so are keys and values in Avro
        (spark.sql.streaming.stateStore.encodingFormat).

    Raises:
        InvalidRequestError: There is no such checkpoint, operator, store or family, or its state
            store writes no changes.
        OffsetOutOfRangeError: A batch is not committed, or its changes were removed (Spark retains
            about 100 batches). The reader also raises this error.
        DataCorruptionError: A file is damaged; raised by the reader.

    Cost:
        Lists the checkpoint, reads each file once, and decodes 64Ki rows at a time by column.

    Source: Spark's state data source with readChangeFeed.

    Examples:
        >>> from sparklog.checkpoint import changes
        >>> changes("checkpoint")  # this query has no stateful operator
        Traceback (most recent call last):
        sparklog.errors.InvalidRequestError: ...
    """
    checkpoint = Checkpoint.open(path, fs, storage_options=storage_options or {})
    store_changes = StoreChanges(checkpoint, operator, store)
    first, last = store_changes.available_batches()
    begin, stop = first if start is None else start, last if end is None else end
    if begin < first or stop > last:
        raise OffsetOutOfRangeError(
            f"changes of batches [{begin}, {stop}) of {store_changes.name} can't be read: only "
            f"the changes of batches [{first}, {last}) exist",
            offset=begin if begin < first else stop,
            start=first,
            end=last,
        )
    _, files = store_changes.files(begin, stop)
    reader = ChangeReader(checkpoint, store_changes.schema, column_family)
    return pa.RecordBatchReader.from_batches(
        reader.arrow_schema, _read(reader, files, store_changes.name, stop)
    )


def _read(
    reader: ChangeReader, files: list[ChangeFile], name: str, end: int
) -> Iterator[pa.RecordBatch]:
    for file in files:
        try:
            yield from reader.read(file)
        except FileNotFoundError:
            raise OffsetOutOfRangeError(
                f"changes of batch {file.batch} of {name} can't be read, because Spark "
                "removed them; start at a later batch",
                offset=file.batch,
                start=file.batch + 1,
                end=end,
            ) from None
