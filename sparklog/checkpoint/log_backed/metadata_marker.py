"""The metadata marker: a file `metadata` that Spark's own checkpoint manager rejects.

Spark can't parse a query id from the marker, and its error message shows the marker's text. So a
session without sparklog's manager fails instead of starting again at batch 0. sparklog's manager
treats the marker as missing. Source: sparklog/jvm/scala/checkpoint/MetadataMarker.scala, which
writes the same file.
"""

import os
from typing import Final

from sparklog.checkpoint.log_backed.partition_writer import FileWriter
from sparklog.fs import FileSystem, read_bytes

METADATA_FILE: Final = "metadata"
"""Path of the file, relative to the checkpoint. The record of this file contains the query id."""

MARKER_START: Final = b'{"id":["sparklog '
MARKER: Final = MARKER_START + (
    b"keeps this checkpoint as a log, which Spark's own checkpoint manager can't read. Start the "
    b"query with sparklog's checkpoint manager, on a local disk: use sparklog.enable(spark), "
    b"sparklog.spark_conf() or spark-submit $(sparklog doctor --spark-conf --args). Or convert the "
    b"checkpoint to files: sparklog checkpoint export "
    b'CHECKPOINT"]}\n'
)
MARKER_OF_RUNS: Final = MARKER_START + (
    b"keeps this checkpoint in runs, which Spark's own checkpoint manager can't read. Start the "
    b"query with sparklog's checkpoint manager: use sparklog.enable(spark) or "
    b"sparklog.spark_conf(), without spark.sparklog.checkpoint.store=disk. Or convert the "
    b'checkpoint to files: sparklog checkpoint export CHECKPOINT"]}\n'
)
_BYTES_MAX: Final = 4096


def has_marker(fs: FileSystem, root: str) -> bool:
    """Return True if the checkpoint at `root` has the metadata marker. Cost: reads a small file."""
    path = os.path.join(root, METADATA_FILE)
    try:
        is_small = not fs.is_dir(path) and fs.size(path) <= _BYTES_MAX
        return is_small and read_bytes(fs, path).startswith(MARKER_START)
    except FileNotFoundError:
        return False


def write_marker(fs: FileSystem, root: str) -> None:
    """Write the marker durably, unless the checkpoint has a `metadata` file already."""
    if not fs.exists(os.path.join(root, METADATA_FILE)):
        replace_marker(fs, root)


def replace_marker(fs: FileSystem, root: str) -> None:
    """Write the marker durably, and replace an existing `metadata` file."""
    hidden = os.path.join(root, f".{METADATA_FILE}.tmp")  # a crash leaves no file of the checkpoint
    output = FileWriter(fs, hidden)
    output.write(MARKER)
    output.close()
    fs.rename(hidden, os.path.join(root, METADATA_FILE))
    fs.sync_dir(root)
