"""Checks before a local segment is deleted that its copies are in the store now.

The log's metadata tells what was copied. Since then a bucket may have been emptied, restored from
an older state, or taken the place of another one of its name. So before the round in which local
segments go, the partition is listed, and only copies whose two objects are there, large enough, are
relied on. Local segments stay where nobody can tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparklog.common import TopicPartition
from sparklog.errors import StorageUnavailableError
from sparklog.log.due_segments import DueSegments, RetentionConstraints
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.pluralize import pluralize
from sparklog.service.tiering.remote_log import RemoteLog
from sparklog.storage.round_report import Report
from sparklog.tiered.copying.plan import copied_ranges
from sparklog.tiered.layout.manifest import directory_of, log_object, manifest_object
from sparklog.tiered.layout.topic_owners import is_owned
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_segment import RemoteSegment


def confirm_copies(
    remote_log: RemoteLog,
    cache: RemoteLogMetadataCache,
    store: Store | None,
    log_id: str,
    known: Mapping[TopicPartition, PartitionRetention],
    due: Mapping[TopicPartition, DueSegments | None],
    terms: Mapping[TopicPartition, RetentionConstraints],
    report: Report,
) -> dict[TopicPartition, RetentionConstraints]:
    """Return the terms, where local segments are due with nothing but copies that are there.

    What isn't there, and a store that doesn't answer, goes into the report. In a store that doesn't
    have the log's own object (`log_id`), nothing counts: what is there was copied to a wrong place.
    Cost: a get, and a listing of each partition where something is due.
    """
    checked, answers = dict(terms), store is not None
    looked = not log_id  # an earlier version's log has none
    for key, found in due.items():
        one = terms.get(key)
        if one is None or one.tier is None or not (one.local and one.tier.copied):
            continue
        if found is not None and not found.expired:
            continue
        copies = remote_log.valid_copies(cache, key, known[key])
        there: list[RemoteSegment] = []
        if answers and copies:
            try:
                assert store is not None
                if not looked and not is_owned(store, log_id):
                    raise StorageUnavailableError(
                        f"{store.url} knows nothing of this log any more: is it another store, or "
                        "a disk that isn't mounted?",
                        path=store.url,
                    )
                looked = True
                there = _there(remote_log, store, key, copies)
            except StorageUnavailableError as error:
                answers = False  # the others wait with it: each would take as long
                report.errors.append(f"local segments stay: {error}")
            else:
                _report_missing(store, key, copies, there, report)
        checked[key] = replace(one, tier=replace(one.tier, copied=copied_ranges(there)))
    return checked


def _there(
    remote_log: RemoteLog, store: Store, key: TopicPartition, copies: Sequence[RemoteSegment]
) -> list[RemoteSegment]:
    listed = {o.name: o.size for o in store.list(directory_of(copies[0]).prefix)}
    return [
        copy
        for copy in copies
        if remote_log.is_planned(copy)
        or (
            manifest_object(copy) in listed
            and listed.get(log_object(copy), -1) >= copy.size  # encrypted ones are larger
        )
    ]


def _report_missing(
    store: Store,
    key: TopicPartition,
    copies: Sequence[RemoteSegment],
    there: Sequence[RemoteSegment],
    report: Report,
) -> None:
    missing = len(copies) - len(there)
    if missing:
        report.errors.append(
            f"{key}: {pluralize(missing, 'copy', 'copies')} of {len(copies)} not in "
            f"{store.url}, or cut off there, so local segments that rely on them stay: is it the "
            "right store? `sparklog tier verify` tells which; the next sweep copies anew what is "
            "still here"
        )
