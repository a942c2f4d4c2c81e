"""Writing metadata records: to a new cluster's `bootstrap.checkpoint`, or to a metadata log.

A `bootstrap.checkpoint` is as `kafka-storage format` writes it: a snapshot's header, the first
records of the metadata log, which the controller appends unchanged, and a footer. Records are
appended to an existing metadata log as its last leader would have done: in its epoch, after its
last complete batch. Its only voter elects itself when it starts, which commits all records.
Source: BootstrapDirectory, BatchFileWriter, KafkaRaftLog, ActivationRecordsGenerator (Kafka 4.1).
"""

import os
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from sparklog.errors import DataCorruptionError
from sparklog.format.compression import Codec
from sparklog.format.control import snapshot_footer, snapshot_header
from sparklog.format.metadata_records import MetadataRecord, encode_metadata
from sparklog.format.records import encode
from sparklog.format.scan import rebase
from sparklog.fs import FileSystem, write_durably
from sparklog.logdir.cluster_metadata import BOOTSTRAP_NAME, ClusterMetadata

_BATCH_BYTES: Final = 1 << 20
_BATCH_BYTES_MAX: Final = 8 << 20  # KafkaRaftClient.MAX_BATCH_SIZE_BYTES


def encode_batches(
    records: Sequence[MetadataRecord], *, base_offset: int, epoch: int, time_ms: int
) -> memoryview:
    """Return metadata records as record batches that begin at `base_offset`."""
    values = pa.array([encode_metadata(record) for record in records], pa.binary())
    made = encode(
        pa.record_batch({"value": values}), codec=Codec.NONE, batch_size=_BATCH_BYTES,
        max_message_bytes=_BATCH_BYTES_MAX, timestamp_ms_default=time_ms,
    )  # fmt: skip
    rebase(made.data, base_offset, epoch)
    return made.data


def bootstrap_bytes(records: Sequence[MetadataRecord], *, time_ms: int) -> bytes:
    """Return the contents of a `bootstrap.checkpoint` with these records."""
    footer = snapshot_footer(timestamp=time_ms)
    rebase(footer, len(records) + 1, 0)
    body = encode_batches(records, base_offset=1, epoch=0, time_ms=time_ms)
    return b"".join([snapshot_header(timestamp=time_ms), body, footer])


def write_bootstrap(
    fs: FileSystem, directory: str, records: Sequence[MetadataRecord], *, time_ms: int
) -> None:
    """Replace a log dir's `bootstrap.checkpoint`, durably."""
    raw = bootstrap_bytes(records, time_ms=time_ms)
    write_durably(fs, os.path.join(directory, BOOTSTRAP_NAME), raw)


def append_to_metadata_log(
    fs: FileSystem, known: ClusterMetadata, records: Sequence[MetadataRecord], *, time_ms: int
) -> None:
    """Append records to the metadata log that `known` was read from, durably.

    A torn batch at the end of the metadata log is removed, as when a broker starts. A crash leaves
    a part of the records; the next call computes the missing records and appends them.
    """
    if not known.path:
        raise DataCorruptionError(
            "the cluster's metadata log has no segment; restore it from a copy", path=known.path
        )
    raw = encode_batches(records, base_offset=known.end, epoch=known.epoch, time_ms=time_ms)
    with fs.open(known.path, write=True) as file:
        # `position` is the end of the last complete batch. The rest is a torn batch.
        file.truncate(known.position)
        file.pwrite(raw, known.position)
        file.sync()
