"""What lies at `metadata` of a checkpoint that is kept as a log, for Spark's own manager to refuse.

Spark can't make a query's id of it: a session without sparklog's manager fails with the sentence
that it holds, where it would begin from batch 0. To who knows log dirs the file isn't there.
Source: sparklog/state/scala/Mark.scala, which writes the same.
"""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparklog.checkpoint.as_log.partition_writer import Output
from sparklog.errors import DataCorruptionError
from sparklog.fs import FileSystem, read_bytes

if TYPE_CHECKING:
    from sparklog.checkpoint.files import Checkpoint

MARKED: Final = "metadata"
"""Path of the file, relative to the checkpoint; its record has the query's id."""

MARK_BEGIN: Final = b'{"id":["sparklog '
MARK: Final = MARK_BEGIN + (
    b"keeps this checkpoint as a log, which Spark's own checkpoint manager can't read: start the "
    b"query with sparklog's, on a local disk, by sparklog.enable(spark), sparklog.spark_conf() or "
    b"spark-submit $(sparklog spark-conf --args); or make files of it again, by: sparklog "
    b"checkpoint export "
    b'CHECKPOINT"]}\n'
)
_BYTES_MAX: Final = 4096


def is_marked(fs: FileSystem, root: str) -> bool:
    """Whether the mark lies in the checkpoint at `root`. Cost: reads that small file."""
    path = os.path.join(root, MARKED)
    try:
        is_small = not fs.is_dir(path) and fs.size(path) <= _BYTES_MAX
        return is_small and read_bytes(fs, path).startswith(MARK_BEGIN)
    except FileNotFoundError:
        return False


def leave(fs: FileSystem, root: str) -> None:
    """Leave the mark, durably, where nothing of Spark's own manager lies."""
    if not fs.exists(os.path.join(root, MARKED)):
        hidden = os.path.join(root, f".{MARKED}.tmp")  # a crash leaves no file of the checkpoint
        output = Output(fs, hidden)
        output.write(MARK)
        output.close()
        fs.rename(hidden, os.path.join(root, MARKED))
        fs.sync_dir(root)


def mixed(checkpoint: "Checkpoint") -> Iterator[DataCorruptionError]:
    """Yield what a session without sparklog's manager wrote beside a checkpoint's log.

    Plans and commits that lie there as files are older than what only the log has, where it goes on
    with an ordinary checkpoint; or they are the same, where an import was cut off.
    """
    if not checkpoint.partitions:
        return
    if checkpoint.is_record(MARKED) and MARKED in checkpoint.files():
        file = read_bytes(checkpoint.fs, checkpoint.real(MARKED))
        if _id_of(file) != _id_of(checkpoint.read(MARKED)):
            yield _beside_the_log(checkpoint, MARKED)
    for directory in ("offsets", "commits"):
        batches = {name for name in checkpoint.names(directory) if name.isdecimal()}
        kept = {name for name in batches if checkpoint.is_record(f"{directory}/{name}")}
        files = {name for name in batches if f"{directory}/{name}" in checkpoint.files()}
        own = min(map(int, kept - files), default=None)
        for name in sorted(files, key=int):
            path = f"{directory}/{name}"
            if name in kept:
                file = read_bytes(checkpoint.fs, checkpoint.real(path))
                is_other = checkpoint.read(path) != file
            else:
                is_other = own is not None and int(name) > own
            if is_other:
                yield _beside_the_log(checkpoint, path)


def _beside_the_log(checkpoint: "Checkpoint", path: str) -> DataCorruptionError:
    return DataCorruptionError(
        "a session without sparklog's checkpoint manager wrote it, beside the log that the "
        "checkpoint is: these are two histories; the log's goes on when metadata, offsets and "
        "commits of the other one are moved away. What that session wrote to its sink stays there",
        path=checkpoint.real(path),
    )


def _id_of(data: bytes) -> object:
    try:
        return json.loads(data)["id"]
    except (ValueError, KeyError, TypeError):
        return None
