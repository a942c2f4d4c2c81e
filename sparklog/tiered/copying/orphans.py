"""Find objects in a bucket that belong to no known copy, and copies that lack objects.

Nothing is changed. Only prefixes with a topic id that this log has or had are examined, because
another log may share the bucket. Listings may be outdated, so an object counts as an orphan only
when it is old, and as lost only when a request for it fails.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.common import TopicIdPartition
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.object_names import (
    Directory,
    parse_log,
    parse_log_start,
    parse_manifest,
)
from sparklog.tiered.object_store.store import Store, StoredObject
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

GRACE_MS: Final = 3_600_000
UPLOAD_MS: Final = 7 * 24 * 3_600_000  # an older upload has no writer any more
DELETED_KEPT_MS: Final = (
    7 * 24 * 3_600_000
)  # how long the prefixes of a deleted topic are examined


@dataclass(slots=True)
class PrefixCheck:
    """Differences between the objects of a partition in the bucket and the metadata of its copies.

    Attributes:
        orphans: Objects that belong to no known copy, and are older than the grace period.
        unknown_manifests: Manifests of copies that the metadata lack, of any age.
        missing: Copies of which an object is missing.
    """

    orphans: list[StoredObject] = field(default_factory=list)
    unknown_manifests: list[StoredObject] = field(default_factory=list)
    missing: list[RemoteSegment] = field(default_factory=list)


def prefixes(
    cache: RemoteLogMetadataCache, topics: Mapping[TopicIdPartition, str], *, now_ms: int
) -> dict[TopicIdPartition, Directory]:
    """Return the directories that may contain this log's objects.

    `topics`: {partition: topic} of the partitions that are tiered now.
    """
    names = dict(topics)
    for key, (topic, since_ms) in cache.deleted_partitions.items():
        if now_ms - since_ms <= DELETED_KEPT_MS:
            names.setdefault(key, topic)
    names |= {key: cache.all(key)[0].topic for key in list(cache.keys())}
    return {key: Directory(topic, key.partition, key.topic_id) for key, topic in names.items()}


def find_orphans(
    store: Store,
    copies: Iterable[RemoteSegment],
    directory: Directory,
    *,
    now_ms: int,
    grace_ms: int = GRACE_MS,
) -> PrefixCheck:
    """List a prefix and compare the objects with the known copies, without changes.

    Cost: a list request per 1,000 objects; two more requests per copy that the listing does not
        show.
    """
    differences = PrefixCheck()
    known = {s.id: s for s in copies}
    listed = store.list(directory.prefix)
    names = {stored.name for stored in listed}
    for stored in listed:
        segment_id, is_manifest = _whose(stored, directory)
        segment = known.get(segment_id)
        if _is_old_start(stored, directory, known.values()):
            differences.orphans.append(stored)
        if not segment_id or (segment is not None and stored.name in objects_of(segment)):
            continue  # another log's object, or part of a known copy
        if is_manifest and segment is None:
            differences.unknown_manifests.append(stored)
        # An upload may be in progress whose metadata record is not visible here yet.
        if now_ms - stored.time_ms >= grace_ms:
            differences.orphans.append(stored)
    for segment in known.values():
        finished = segment.state is SegmentState.COPY_FINISHED
        # Listings of some stores are outdated for a while, so a loss is confirmed by a request.
        if finished and not objects_of(segment) <= names and is_lost(store, segment):
            differences.missing.append(segment)
    return differences


def objects_of(segment: RemoteSegment) -> set[str]:
    """Return the names of a copy's objects."""
    return {manifest_object(segment), log_object(segment)}


def _whose(stored: StoredObject, directory: Directory) -> tuple[str, bool]:
    """Return (segment id, whether the object is a manifest); ("", False) for other names."""
    name = stored.name.removeprefix(directory.prefix)
    log, manifest = parse_log(name), parse_manifest(name)
    if manifest is not None:
        return manifest.id, True
    return ("" if log is None else log[1]), False


def _is_old_start(
    stored: StoredObject, directory: Directory, copies: Iterable[RemoteSegment]
) -> bool:
    """Return True for an object with a log start offset that is in no copy, and has no effect."""
    start = parse_log_start(stored.name.removeprefix(directory.prefix))
    return start is not None and not any(s.base < start < s.end for s in copies)


def is_lost(store: Store, segment: RemoteSegment) -> bool:
    """Return True if an object of a copy does not exist, by requesting a byte of each.

    Raises:
        StorageUnavailableError: The store can't answer, so the loss is unknown.
    """
    for name in (manifest_object(segment), log_object(segment)):
        try:
            store.get(name, 0, 1)
        except FileNotFoundError:
            return True
    return False


def remove(store: Store, orphans: Iterable[StoredObject]) -> None:
    """Delete orphans, manifests first."""
    names = sorted((o.name for o in orphans), key=lambda n: not n.endswith(".manifest"))
    for first in range(0, len(names), 1000):
        with contextlib.suppress(FileNotFoundError):
            store.delete(names[first : first + 1000])
