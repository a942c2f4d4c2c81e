"""`erase`: removes records of a topic for good, locally and in remote storage; offsets stay."""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sparklog.clock import Clock, system_clock
from sparklog.format.erasure import RecordPredicate
from sparklog.fs import LOCAL, FileSystem
from sparklog.service.options import OpenStore
from sparklog.service.service import WAIT_MS, Service
from sparklog.storage.erasure_report import ErasureReport
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.target import open_store


def erase(
    path: str | os.PathLike[str],
    topic: str,
    keys: Collection[bytes] = (),
    *,
    predicate: RecordPredicate | None = None,
    partitions: Collection[int] | None = None,
    null_key: bool = False,
    before: int | None = None,
    before_ms: int | None = None,
    dry_run: bool = False,
    wait_ms: float = WAIT_MS,
    waiting: Callable[[str], None] = lambda who: None,
    storage_options: Mapping[str, Any] | None = None,
    keyring: Keyring | None = None,
    options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
    opening: OpenStore = open_store,
) -> ErasureReport:
    """Erase the records of these keys for good, wherever the log stores them.

    The call covers every record of the topic that was committed before the call and has one of the
    keys. When it returns with a report that is `complete`, these records have been removed from
    local segments including the active segment, from copies in remote storage, from extents and
    entries of a log in a bucket, and from files that wait to be unlinked. All other records stay
    unchanged at their offsets; a batch without erased records stays byte for byte the same. Readers
    and writers continue during the call.

    Changes to copies in remote storage, or to a log in a bucket, require the lease of the
    background work. A service that leads hands the lease over at the end of its step, until the
    erasure is done. If it does not within `wait_ms`, the rest is reported as `pending`; calling
    again continues. The request itself is not stored: if this process dies, the service leads
    again, and records that were not erased yet stay.

    Args:
        path: Log dirs joined by ",", or a URL.
        topic: Any topic, whatever its cleanup.policy.
        keys: Keys as bytes, as stored in the log.
        predicate: Selects the records to erase, instead of keys: a
            `sparklog.service.RecordPredicate`.
        partitions: Only these partitions; by default all.
        null_key: Also erase records without a key.
        before: Only records below this offset.
        before_ms: Only records with a timestamp (ms since the epoch) below this.
        dry_run: Count only, without a change.
        wait_ms: How long to wait (ms) for a service that leads in another process.
        waiting: Called once with a description of the process that is waited for.
        storage_options: See `Service`.
        keyring: See `Service`.
        options: See `Service`.
        fs: The file system of log dirs; for tests.
        clock: The current time in milliseconds since the epoch; for tests.
        opening: Creates the store of a URL; for tests.

    Raises:
        UnknownTopicError: There is no such topic.
        InvalidRequestError: An argument is invalid.
        SparklogError: The log cannot be opened; see `sparklog.open`. A failure in a partition, or
            of remote storage, is part of the report.

    Cost:
        Reads all of the topic once, and rewrites the segments that contain erased records.

    Examples:
        >>> from sparklog.service import erase
        >>> report = erase("log", "flights", [b"N1"])
        >>> report.records, report.complete
        (67, True)
        >>> b"N1" in log.read("flights").read_all()["key"].to_pylist()
        False
    """
    service = Service(
        path, storage_options=storage_options, keyring=keyring, options=options, fs=fs,
        clock=clock, opening=opening,
    )  # fmt: skip
    try:
        return service.erase(
            topic, keys, predicate=predicate, partitions=partitions, null_key=null_key,
            before=before, before_ms=before_ms, dry_run=dry_run, wait_ms=wait_ms, waiting=waiting,
        )  # fmt: skip
    finally:
        service.close()
