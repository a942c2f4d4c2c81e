"""State as a topic: what each batch changed in an operator's state, key by key, as Arrow.

    from sparklog import checkpoint
    checkpoint.changes("/data/checkpoint", operator=0).read_all()

    batch          int64    the micro-batch
    partition      int32    the state partition
    change         string   "put", "delete", "merge" (a value is appended to the key's list),
                            "delete_range" (all keys from `key` to before `range_end`)
    key, value     struct   as the operator's state schema has them; value null when deleted

A store with column families (transformWithState) has two columns more: `column_family` behind
`partition`, and `range_end`, of the key's type, at the end. Its key and value are structs of
structs, one for each family, of which that of the row's own family is filled.

A put of a whole list comes as a put of its first value and a merge of each other one.
Source: the `readChangeFeed` option of Spark's own `statestore` source, which this equals.
"""

import os
from collections.abc import Iterator

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
    fs: FileSystem = LOCAL,
) -> pa.RecordBatchReader:
    """Read what batches [start, end) changed in an operator's state; of a running query as well.

    Args:
        path: the checkpoint.
        operator, store: as in its directory `state`; a join has four stores, others "default".
        start, end: batch numbers; None: the earliest whose changes are kept, and what is committed
            now.
        column_family: of transformWithState, the state variable's name: only its changes, with key
            and value as plain structs. Spark's own families begin with "$".
    Returns: a reader of batches with the columns above, in order of batch and partition, within a
        partition in the order in which they were made. Values that Arrow has no type for are
        binary: see state_schema.py; so are whole keys and values that are Avro
        (spark.sql.streaming.stateStore.encodingFormat).
    Raises: InvalidRequestError: no such checkpoint, operator, store or family, or its provider
        writes no changes; OffsetOutOfRangeError: a batch is not committed, or its changes are gone
        (Spark keeps about 100 batches), which the reader raises, too; from it: DataCorruptionError.
    Cost: lists the checkpoint; reads each file once, decoded by column, 64Ki rows at a time.
    """
    checkpoint = Checkpoint.open(path, fs)
    store_changes = StoreChanges(checkpoint, operator, store)
    first, last = store_changes.held()
    begin, stop = first if start is None else start, last if end is None else end
    if begin < first or stop > last:
        raise OffsetOutOfRangeError(
            f"changes of batches [{begin}, {stop}) of {store_changes.name} can't be read: there "
            f"are those of [{first}, {last})",
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
                f"changes of batch {file.batch} of {name} can't be read: Spark removed them "
                "meanwhile; start at a later batch",
                offset=file.batch,
                start=file.batch + 1,
                end=end,
            ) from None
