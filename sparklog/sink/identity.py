"""Who writes which micro-batch: writer, number, and the fingerprint of its planned offsets.

The number alone doesn't tell a replay: Spark never syncs its checkpoint, so after a power cut, or
with a copied or deleted checkpoint, the same number may come with other rows. The fingerprint is
the SHA-256 of the checkpoint's `offsets/N`, which Spark writes before the batch runs: equal on a
replay, different when the batch was planned anew. Source: PROTOCOL, "Identity", C1.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass

from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem, read_bytes
from sparklog.log.commit import Identity
from sparklog.sink.options import SinkOptions
from sparklog.sink.query import Query

_CONNECT = (
    "foreachBatch can't see its query here (Spark Connect, or no query at all): give the options "
    "writerId (any name that is this query's alone) and checkpointLocation (the query's own)"
)


@dataclass(frozen=True, slots=True)
class Planned:
    """A micro-batch's identity and the text of its planned offsets."""

    identity: Identity
    offsets: bytes


def of_query(
    options: SinkOptions, query: Query | None, batch: int, fs: FileSystem = LOCAL
) -> Planned:
    """Identify a foreachBatch call; makes the planned offsets durable, where they are local.

    Raises: InvalidRequestError naming the options to give where Spark doesn't tell.
    """
    if query is None and (options.writer_id is None or options.checkpoint is None):
        raise InvalidRequestError(_CONNECT)
    who = options.writer_id or (query.id if query is not None else "")
    checkpoint = options.checkpoint or (query.checkpoint if query is not None else "")
    offsets = _local(checkpoint, batch, fs)
    if offsets is None and query is not None and options.checkpoint is None:
        offsets = query.planned(batch)
    if offsets is None:
        raise InvalidRequestError(
            f"{checkpoint}/offsets/{batch} can't be read: give the query's own checkpoint by "
            "option checkpointLocation, as a path that the driver sees"
        )
    return _planned(who, options.name, batch, offsets)


def of_checkpoint(options: SinkOptions, batch: int, fs: FileSystem = LOCAL) -> Planned:
    """Identify a batch of `df.writeStream.format("sparklog")`, which knows its checkpoint only.

    Raises: InvalidRequestError naming the option checkpointLocation.
    """
    checkpoint = options.checkpoint
    if checkpoint is None:
        raise InvalidRequestError(
            "the query's checkpoint is unknown: give it by .option('checkpointLocation', ...), "
            "not by the session's conf"
        )
    offsets = _local(checkpoint, batch, fs)
    writer = options.writer_id or _query_id(checkpoint, fs)
    if offsets is None or writer is None:
        raise InvalidRequestError(
            f"{checkpoint}/offsets/{batch} can't be read: format('sparklog') needs the checkpoint "
            "on the driver's own disk; elsewhere write by foreachBatch and SegmentSink"
        )
    return _planned(writer, options.name, batch, offsets)


def _planned(who: str, name: str, batch: int, offsets: bytes) -> Planned:
    writer = f"{who}/{name}" if name else who
    fingerprint = hashlib.sha256(offsets).hexdigest()
    identity = Identity(writer=writer, batch=batch, fingerprint=fingerprint)
    return Planned(identity, offsets)


def _local(checkpoint: str, batch: int, fs: FileSystem) -> bytes | None:
    """Read `offsets/<batch>` and make it durable, with its name; None if it isn't a local file."""
    root = _local_path(checkpoint)
    if root is None:
        return None
    path = os.path.join(root, "offsets", str(batch))
    try:
        with fs.open(path) as file:
            file.sync()
        fs.sync_dir(os.path.dirname(path))
        return read_bytes(fs, path)
    except FileNotFoundError:
        return None


def _query_id(checkpoint: str, fs: FileSystem) -> str | None:
    root = _local_path(checkpoint)
    if root is None:
        return None
    try:
        document = json.loads(read_bytes(fs, os.path.join(root, "metadata")))
    except (FileNotFoundError, ValueError):
        return None
    return str(document["id"])


def _local_path(url: str) -> str | None:
    """Return the local path of a Hadoop path, None if it is on another file system."""
    if match := re.match(r"file:(?://)?(?=/)", url):
        return url[match.end() :]
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) else os.path.abspath(url)
