"""The file `metadata` of a log-backed checkpoint, which Spark's own manager rejects.

Spark can't parse a query id from it. So a session without sparklog's manager fails, and shows the
sentence in the file, instead of starting at batch 0. sparklog ignores the file. Source:
sparklog/jvm/scala/checkpoint/MetadataMarker.scala, which writes the same.
"""

import os
from typing import Final

from sparklog.checkpoint.log_backed.partition_writer import FileWriter
from sparklog.fs import FileSystem, read_bytes

METADATA_FILE: Final = "metadata"
"""Path of the file, relative to the checkpoint; its record has the query's id."""

MARKER_START: Final = b'{"id":["sparklog '
MARKER: Final = MARKER_START + (
    b"keeps this checkpoint as a log, which Spark's own checkpoint manager can't read: start the "
    b"query with sparklog's, on a local disk, by sparklog.enable(spark), sparklog.spark_conf() or "
    b"spark-submit $(sparklog spark-conf --args); or make files of it again, by: sparklog "
    b"checkpoint export "
    b'CHECKPOINT"]}\n'
)
_BYTES_MAX: Final = 4096


def has_marker(fs: FileSystem, root: str) -> bool:
    """Return True if the checkpoint at `root` has the marker. Cost: reads that small file."""
    path = os.path.join(root, METADATA_FILE)
    try:
        is_small = not fs.is_dir(path) and fs.size(path) <= _BYTES_MAX
        return is_small and read_bytes(fs, path).startswith(MARKER_START)
    except FileNotFoundError:
        return False


def write_marker(fs: FileSystem, root: str) -> None:
    """Write the marker, durably, unless a file of Spark's own manager exists."""
    if not fs.exists(os.path.join(root, METADATA_FILE)):
        replace_marker(fs, root)


def replace_marker(fs: FileSystem, root: str) -> None:
    """Write the marker, durably, and replace an existing file."""
    hidden = os.path.join(root, f".{METADATA_FILE}.tmp")  # a crash leaves no file of the checkpoint
    output = FileWriter(fs, hidden)
    output.write(MARKER)
    output.close()
    fs.rename(hidden, os.path.join(root, METADATA_FILE))
    fs.sync_dir(root)
