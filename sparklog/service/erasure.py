"""`erase`: records of a topic go for good, in both tiers; offsets are kept."""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sparklog.clock import Clock, system_clock
from sparklog.format.erasure import RecordPredicate
from sparklog.fs import LOCAL, FileSystem
from sparklog.service.service import WAIT_MS, Service
from sparklog.service.tiering.remote_log_manager import OpenStore
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
    """Erase the records of these keys for good, wherever the log at `path` keeps them.

    Every record of the topic that was committed before this call began and has one of the keys is
    gone when it returns with a report that is `complete`: from local segments, the active one too,
    from copies in remote storage, from extents and entries of a log in a store, and from what waits
    to be unlinked. All others stay as they were, at their offsets; batches that held none of them
    byte for byte. Readers and writers go on meanwhile. Who changes copies in remote storage, and a
    log in a store, leads its background work: a service that does so hands that over until this is
    done, at the end of its step. One that doesn't within `wait_ms` keeps it, and what is left
    then is `pending`; the same call again goes on. Nothing is kept of the request: if this
    process dies the service leads again, and what was not erased by then stays.

    Args:
        topic: any, whatever its cleanup.policy.
        keys: as they are in the log.
        predicate: instead of keys: is given Arrow record batches of the columns that it names, and
            says which records go (`sparklog.format.erasure.RecordPredicate`).
        partitions: these alone. null_key: records without a key too.
        before: only records below this offset. before_ms: only those with a timestamp below this.
        dry_run: count only; nothing is changed.
        wait_ms: how long a service that leads in another process is waited for. waiting: is told
            once who that is.
        storage_options, keyring, options: as of `Service`.
    Raises: UnknownTopicError, InvalidRequestError, what `sparklog.open` raises. What fails in a
        partition, or because a store is away, is in the report.
    Cost: reads all of the topic once, and rewrites the segments that hold such records.
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
