"""Finds objects that no metadata knows, and metadata whose objects are gone. Others act.

Only below prefixes whose topic id this log has or had: another log may share the bucket. Lists
may lag behind, so an object counts as left over only when it is old, and as lost only when asking
for it says so.
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
UPLOAD_MS: Final = 7 * 24 * 3_600_000  # an upload that is older has no writer any more
DELETED_KEPT_MS: Final = (
    7 * 24 * 3_600_000
)  # for so long leftovers of a deleted topic are looked for


@dataclass(slots=True)
class PrefixCheck:
    """Where a prefix and the metadata differ.

    `orphans`: objects that belong to no copy, and are old. `unknown_manifests`: those of copies
    that the metadata doesn't have, of any age. `missing`: copies with an object missing.
    """

    orphans: list[StoredObject] = field(default_factory=list)
    unknown_manifests: list[StoredObject] = field(default_factory=list)
    missing: list[RemoteSegment] = field(default_factory=list)


def prefixes(
    cache: RemoteLogMetadataCache, topics: Mapping[TopicIdPartition, str], *, now_ms: int
) -> dict[TopicIdPartition, Directory]:
    """Return where this log's objects may lie.

    Args: topics: {partition: its topic} of what is tiered now.
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
    """List a prefix and compare it with the copies that are known there. Changes nothing.

    Cost: a list request for each 1,000 objects; two more for each copy that it doesn't show.
    """
    found = PrefixCheck()
    known = {s.id: s for s in copies}
    listed = store.list(directory.prefix)
    names = {one.name for one in listed}
    for one in listed:
        segment_id, is_manifest = _whose(one, directory)
        segment = known.get(segment_id)
        if _is_old_start(one, directory, known.values()):
            found.orphans.append(one)
        if not segment_id or (segment is not None and one.name in objects_of(segment)):
            continue  # somebody else's, or a copy's own
        if is_manifest and segment is None:
            found.unknown_manifests.append(one)
        if now_ms - one.time_ms >= grace_ms:
            found.orphans.append(one)
    for segment in known.values():
        finished = segment.state is SegmentState.COPY_FINISHED
        if finished and not objects_of(segment) <= names and is_lost(store, segment):
            found.missing.append(segment)
    return found


def objects_of(segment: RemoteSegment) -> set[str]:
    """Return the names of a copy's objects."""
    return {manifest_object(segment), log_object(segment)}


def _whose(one: StoredObject, directory: Directory) -> tuple[str, bool]:
    """(segment id, whether it is a manifest) of an object; no id if the name isn't ours."""
    name = one.name.removeprefix(directory.prefix)
    log, manifest = parse_log(name), parse_manifest(name)
    if manifest is not None:
        return manifest.id, True
    return ("" if log is None else log[1]), False


def _is_old_start(one: StoredObject, directory: Directory, copies: Iterable[RemoteSegment]) -> bool:
    """Tell whether it marks a log start that lies within no copy, so that it says nothing."""
    start = parse_log_start(one.name.removeprefix(directory.prefix))
    return start is not None and not any(s.base < start < s.end for s in copies)


def is_lost(store: Store, segment: RemoteSegment) -> bool:
    """Tell whether one of a copy's objects isn't there, by asking for a byte of each.

    Raises StorageUnavailableError: nobody can tell.
    """
    for name in (manifest_object(segment), log_object(segment)):
        try:
            store.get(name, 0, 1)
        except FileNotFoundError:
            return True
    return False


def remove(store: Store, orphans: Iterable[StoredObject]) -> None:
    """Delete what is left over, manifests first."""
    names = sorted((o.name for o in orphans), key=lambda n: not n.endswith(".manifest"))
    for first in range(0, len(names), 1000):
        with contextlib.suppress(FileNotFoundError):
            store.delete(names[first : first + 1000])
