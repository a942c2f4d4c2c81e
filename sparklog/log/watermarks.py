"""`sparklog.watermarks`: the published high watermark of every partition of every log dir.

One file beside the ledger, in the text format of Kafka's replication-offset-checkpoint. Readers
go by it alone; it is replaced by one rename, so all partitions of a micro-batch show together
(PROTOCOL, H11). It never runs ahead of the durable ledger.
"""

import os
from collections.abc import Mapping
from typing import Final

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint import format_offsets, parse_offsets
from sparklog.fs import FileSystem, read_bytes, write_durably

WATERMARKS_NAME: Final = "sparklog.watermarks"
Offsets = Mapping[tuple[str, int], int]


def publish(fs: FileSystem, directory: str, ends: Offsets) -> None:
    """Replace the file by `ends`: {(topic, partition): high watermark}. One fdatasync.

    The rename itself is not synced: a power cut may bring the former file back, whole, and
    recovery then publishes anew what the ledger says.
    """
    path = os.path.join(directory, WATERMARKS_NAME)
    write_durably(fs, path, format_offsets(ends), sync_dir=False)


def published(fs: FileSystem, directory: str) -> dict[tuple[str, int], int] | None:
    """Return what was published last, or None if the file is missing or unreadable."""
    path = os.path.join(directory, WATERMARKS_NAME)
    try:
        raw = read_bytes(fs, path)
        return parse_offsets(raw, path=path) if raw else None
    except (FileNotFoundError, DataCorruptionError):
        return None
