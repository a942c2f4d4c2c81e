"""The identity of a micro-batch: writer, number, and fingerprint of the planned offsets.

The number alone does not identify a replay. Spark never syncs its checkpoint, so after a power cut,
or with a copied or deleted checkpoint, the same number can come with other rows. The fingerprint is
the SHA-256 of the checkpoint's `offsets/N` (a file or a record), which Spark writes before the
batch runs. The fingerprint is equal for a replay, and differs if the batch was planned again.
Source: sparklog/logdir/PROTOCOL.md, "Identity", C1.
"""

import hashlib
import json
import os
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from sparklog.checkpoint.files import check_not_nested, local_path
from sparklog.checkpoint.log_backed.file_lookup import FileLookup
from sparklog.checkpoint.log_backed.layout import LOGS, RESET, RUNS_SCHEME
from sparklog.checkpoint.log_backed.metadata_marker import METADATA_FILE, has_marker
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.commit import Identity, QueryIdentity
from sparklog.lru_cache import LruCache
from sparklog.sink.options import SinkOptions
from sparklog.sink.query import Query, source_offsets
from sparklog.storage.query_origin import BatchStart, QueryOrigin

_CONNECT = (
    "the sink can't find the query that called it (Spark Connect, a DataFrame of another session "
    "than the micro-batch's, or a call without a query): set the options writerId (a name that no "
    "other query has) and checkpointLocation (the checkpoint of this query)"
)
_LOOKUPS_MAX: Final = 64
_check_not_nested = lru_cache(_LOOKUPS_MAX)(check_not_nested)  # once for each pair
_lookups: LruCache[str, FileLookup] = LruCache(_LOOKUPS_MAX)
_followed: LruCache[str, bool] = LruCache(_LOOKUPS_MAX)  # runs of queries, by run id


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch: identity, and planned offsets (the bytes of `offsets/N`)."""

    identity: Identity
    offsets: bytes


def with_origin(planned: MicroBatch, origin: QueryOrigin) -> MicroBatch:
    known = planned.identity
    identity = QueryIdentity(
        writer=known.writer, batch=known.batch, fingerprint=known.fingerprint, origin=origin
    )
    return replace(planned, identity=identity)


def identify_from_query(
    options: SinkOptions, query: Query | None, batch: int, fs: FileSystem = LOCAL
) -> MicroBatch:
    """Identify the micro-batch of a foreachBatch call. Syncs a local file `offsets/N`.

    Raises:
        InvalidRequestError: Spark does not provide the query, or the planned offsets can't be read.
    """
    if query is None and (options.writer_id is None or options.checkpoint is None):
        raise InvalidRequestError(_CONNECT)
    writer = options.writer_id or (query.id if query is not None else "")
    checkpoint = options.checkpoint or (query.checkpoint if query is not None else "")
    offsets = _local(options, checkpoint, batch, fs, None if query is None else query.id)
    if query is not None and query.is_in_runs:
        _complete_reset(options, query)
    if offsets is None and query is not None and (query.is_in_runs or options.checkpoint is None):
        offsets = query.planned_offsets(batch)
    if offsets is None:
        raise InvalidRequestError(
            f"{checkpoint}/offsets/{batch} can't be read: set option checkpointLocation to the "
            "query's own checkpoint, as a path that the driver can read"
        )
    return _planned(writer, options.name, batch, offsets)


def identify_from_checkpoint(
    options: SinkOptions, batch: int, fs: FileSystem = LOCAL, *, below: str = "", query_id: str = ""
) -> MicroBatch:
    """Identify a micro-batch of `df.writeStream.format("sparklog")` by the query's checkpoint.

    Args:
        options: The sink's options.
        batch: The number of the micro-batch.
        fs: The file system of the checkpoint.
        below: The directory of the conf spark.sql.streaming.checkpointLocation.
        query_id: The id of the query with its checkpoint in that directory.

    Raises:
        InvalidRequestError: The checkpoint is unknown, or the planned offsets can't be read.
    """
    checkpoint = options.checkpoint or _found(below, query_id, fs)
    if checkpoint is None:
        raise InvalidRequestError(
            "the query's checkpoint is unknown: set .option('checkpointLocation', ...)"
        )
    offsets = _local(options, checkpoint, batch, fs)
    writer = options.writer_id or _query_id(checkpoint, fs)
    if offsets is None or writer is None:
        raise InvalidRequestError(
            f"{checkpoint}/offsets/{batch} can't be read: format('sparklog') needs the checkpoint "
            "on the driver's own disk; elsewhere use foreachBatch and SegmentSink"
        )
    planned = _planned(writer, options.name, batch, offsets)
    look = partial(_begun, checkpoint, batch, fs)
    origin = replace(origin_of(options, checkpoint, offsets), look=look)
    return with_origin(planned, origin)


def origin_of(
    options: SinkOptions, checkpoint: str, offsets: bytes, *, name: str = "", plan: str = ""
) -> QueryOrigin:
    """Describe the query at a micro-batch with these planned offsets.

    Args:
        options: The sink's options.
        checkpoint: The path or URL of the query's checkpoint.
        offsets: The planned offsets of the micro-batch.
        name: The name of the query; empty if unknown.
        plan: The `plan_digest` of the query; empty if unknown.
    """
    root = local_path(checkpoint)
    return QueryOrigin(
        checkpoint=(
            checkpoint.removeprefix(RUNS_SCHEME) if root is None else os.path.realpath(root)
        ),
        name=name,
        plan=plan,
        ends=source_offsets(offsets),
        is_meant=options.writer_id is not None,
    )


def _begun(checkpoint: str, batch: int, fs: FileSystem) -> BatchStart:
    """Return the start offsets of a micro-batch, from the planned offsets of the previous batch.

    The start of the first micro-batch is unknown.
    """
    root = local_path(checkpoint)
    before = _lookup(root, fs).read(f"offsets/{batch - 1}") if batch and root else None
    return BatchStart() if before is None else BatchStart(source_offsets(before))


def _found(below: str, query_id: str, fs: FileSystem) -> str | None:
    """Return the checkpoint of a query below the directory that the conf names for all queries."""
    root = local_path(below) if below and query_id else None
    if root is None or not fs.is_dir(root):
        return None
    places = (os.path.join(root, name) for name in sorted(fs.listdir(root)))
    return next((place for place in places if _query_id(place, fs) == query_id), None)


def _planned(who: str, name: str, batch: int, offsets: bytes) -> MicroBatch:
    writer = f"{who}/{name}" if name else who
    fingerprint = hashlib.sha256(offsets).hexdigest()
    identity = Identity(writer=writer, batch=batch, fingerprint=fingerprint)
    return MicroBatch(identity, offsets)


def _local(
    options: SinkOptions, checkpoint: str, batch: int, fs: FileSystem, query: str | None = None
) -> bytes | None:
    """Return the planned offsets from a local checkpoint, and make their file durable.

    Returns None for a checkpoint that is not local, or without this file.

    Raises:
        InvalidRequestError: The log is inside the checkpoint; see also `_check_one_history`.
    """
    root = local_path(checkpoint)
    if root is None:
        return None
    if options.path is not None:
        _check_not_nested(root, options.path)
    # A reset that was interrupted has reset the checkpoint, but not the log. Until both agree, the
    # log would drop the query's new rows as replays or conflicts of the batches after the reset.
    if fs.exists(os.path.join(root, RESET)):
        from sparklog.checkpoint.unfinished_reset import complete  # imports all of a checkpoint

        complete(root, storage_options=options.storage, fs=fs)
    _check_one_history(root, batch, query, fs)
    # Spark doesn't sync the file. If a power cut lost it after the commit, Spark would plan the
    # batch with other offsets, and the commit's fingerprint would never match again.
    return _lookup(root, fs).read(f"offsets/{batch}", durable=True)


def _complete_reset(options: SinkOptions, query: Query) -> None:
    """Reset the log as `_local` does, for a checkpoint in runs.

    A reset ends the run, so a run is asked for the note once.
    """
    if _followed.get(query.run):
        return
    data = query.checkpoint_file(RESET)
    if data is not None:
        from sparklog.checkpoint.unfinished_reset import UnfinishedReset, reset_sink

        path = f"{query.checkpoint}/{RESET}"
        unfinished = UnfinishedReset.parse(data, path)
        reset_sink(unfinished, path, storage_options=options.storage)
        query.delete_checkpoint_file(RESET)
    _followed.put(query.run, True)


def _check_one_history(root: str, batch: int, query: str | None, fs: FileSystem) -> None:
    """Raise InvalidRequestError if Spark's own CheckpointFileManager runs a log-backed checkpoint.

    Such a query starts from batch 0, because that manager does not find the files that are stored
    as records.
    """
    # Spark's manager can't start a query with the marker file; older sparklog wrote no marker.
    if not fs.is_dir(os.path.join(root, LOGS)) or has_marker(fs, root):
        return
    lookup = _lookup(root, fs)
    others = [path for path in (METADATA_FILE, f"offsets/{batch}") if lookup.differs(path)]
    kept = lookup.record(METADATA_FILE)
    is_another = kept is not None and query is not None and query.encode() not in kept
    if others or is_another:
        raise InvalidRequestError(
            f"{root} is a log-backed checkpoint, but this session runs the query without "
            "sparklog's checkpoint manager, from batch 0, which would duplicate its rows; no row "
            "was written. Stop the query, build the session with sparklog.spark_conf() or call "
            "sparklog.enable(spark), and list the files that the query wrote beside the logs: "
            "sparklog checkpoint verify"
        )


def _query_id(checkpoint: str, fs: FileSystem) -> str | None:
    root = local_path(checkpoint)
    data = None if root is None else _lookup(root, fs).read("metadata")
    try:
        query_id = None if data is None else json.loads(data)["id"]
    except (ValueError, KeyError):
        return None
    return query_id if isinstance(query_id, str) else None  # the marker file, without its record


def _lookup(root: str, fs: FileSystem) -> FileLookup:
    """Return the cached lookup of a checkpoint, which a query needs for every micro-batch."""
    if fs is not LOCAL:
        return FileLookup(root, fs)
    return _lookups.get_or_make(root, lambda: FileLookup(root, fs))
