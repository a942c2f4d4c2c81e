"""What a broker does on a log dir that was handed over, as far as its files show it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sparklog.format.metadata_records import MetadataRecord, OtherRecord
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.logdir.broker_lockout import is_marked_open
from sparklog.logdir.cluster_metadata import (
    BOOTSTRAP_NAME,
    METADATA_DIR,
    ClusterMetadata,
    _records,
    read_bootstrap,
    read_cluster_metadata,
)
from sparklog.logdir.meta_properties import is_kept_from_brokers, read_properties
from sparklog.tools.handover.bootstrap_checkpoint import encode_batches

BEGIN = OtherRecord(23, bytes.fromhex("01170000"))
END = OtherRecord(24, bytes.fromhex("01180000"))


def starts(fs: FileSystem, directories: Sequence[str]) -> bool:
    """Whether a broker would start there."""
    return not any(
        is_kept_from_brokers(fs, each) or not read_properties(fs, each) or is_marked_open(fs, each)
        for each in directories
    )


def known(fs: FileSystem, directory: str) -> ClusterMetadata:
    """What the cluster knows: by its metadata log, or by what will be in it at first."""
    found = read_cluster_metadata(fs, directory)
    if found is None or not found.has_controller_records:
        found = read_bootstrap(fs, directory)
    assert found is not None
    return found


def run_broker(
    fs: FileSystem,
    directories: Sequence[str],
    *more: MetadataRecord,
    clean: bool = True,
) -> None:
    """Start and stop: the metadata log gets its first records, and `more` by clients."""
    assert starts(fs, directories)
    home = directories[0]
    path = os.path.join(home, METADATA_DIR)
    if not fs.is_dir(path):
        bootstrap = os.path.join(home, BOOTSTRAP_NAME)
        first = [record for _, record in _records(read_bytes(fs, bootstrap), 0, bootstrap)]
        fs.mkdir(path)
        append(fs, path, [BEGIN, *first, END])
    if more:
        append(fs, path, more)
    for directory in directories:
        mark = os.path.join(directory, ".kafka_cleanshutdown")
        if fs.exists(mark):
            fs.unlink(mark)
        if clean:
            write_durably(fs, mark, b'{"version":0,"brokerEpoch":9}')


def append(fs: FileSystem, path: str, records: Sequence[MetadataRecord]) -> None:
    """Append to the metadata log, as its leader does."""
    segment = os.path.join(path, f"{0:020d}.log")
    there = read_cluster_metadata(fs, os.path.dirname(path))
    at = 0 if there is None else there.end
    raw = read_bytes(fs, segment) if fs.exists(segment) else b""
    write_durably(
        fs, segment, raw + bytes(encode_batches(records, base_offset=at, epoch=2, time_ms=1))
    )
