"""Find partitions and copies of their segments in a bucket, from listings alone.

The name of a manifest contains offsets and largest timestamp, the listing of the log its size.
Manifests are read only where copies overlap (a repeated upload, a cleaned segment and its sources),
to determine the valid ones.
"""

from collections.abc import Iterable
from dataclasses import replace

from sparklog.errors import DataCorruptionError
from sparklog.tiered.layout.object_names import (
    Directory,
    parse_directory,
    parse_log,
    parse_log_start,
    parse_manifest,
)
from sparklog.tiered.object_store.store import StoredObject
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_log_metadata.metadata_cache import not_superseded
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState


def group(objects: Iterable[StoredObject]) -> dict[Directory, list[StoredObject]]:
    """Group a listing by partition; objects that can't belong to a partition are left out."""
    by_directory: dict[Directory, list[StoredObject]] = {}
    for entry in objects:
        prefix, slash, name = entry.name.partition("/")
        directory = parse_directory(prefix) if slash and "/" not in name else None
        if directory is not None:
            by_directory.setdefault(directory, []).append(replace(entry, name=name))
    return by_directory


def listed_segments(directory: Directory, objects: Iterable[StoredObject]) -> list[RemoteSegment]:
    """Return the copies in a partition's directory that have a log and a manifest, by base offset.

    Their leader epochs are not known yet, and `size` is the size of the object. A manifest without
    a log is left out, because its copy is being deleted.

    Args:
        directory: The partition's directory.
        objects: The listed objects. Their names do not include the directory.
    """
    objects = list(objects)
    logs = {parse_log(entry.name): entry.size for entry in objects}
    segments = []
    for entry in objects:
        listed = parse_manifest(entry.name)
        if listed is None or (listed.base, listed.id) not in logs:
            continue
        segments.append(
            RemoteSegment(
                topic=directory.topic,
                topic_id=directory.topic_id,
                partition=directory.partition,
                id=listed.id,
                base=listed.base,
                end=listed.end,
                max_timestamp=listed.max_timestamp,
                size=logs[listed.base, listed.id],
                epochs=(),
                state=SegmentState.COPY_FINISHED,
                time_ms=entry.time_ms,
            )
        )
    return sorted(segments, key=lambda s: (s.base, s.end, s.id))


def log_start(objects: Iterable[StoredObject]) -> int:
    """Return a partition's log start offset: the largest in the names of its log start objects.

    Returns 0 without such an object.
    """
    return max((at for e in objects if (at := parse_log_start(e.name)) is not None), default=0)


def chosen(segments: list[RemoteSegment], objects: RemoteObjects) -> list[RemoteSegment]:
    """Return the valid copies, without overlaps. Reads the manifests of overlapping copies.

    Raises:
        DataCorruptionError: The manifest of an overlapping copy is damaged.
    """
    doubtful = _overlapping(segments)
    if not doubtful:
        return segments
    known: list[RemoteSegment] = []
    replaced: set[str] = set()
    for segment, opened in zip(doubtful, objects.open_many(doubtful), strict=True):
        if isinstance(opened, FileNotFoundError):
            continue  # deleted since the listing
        if isinstance(opened, Exception):
            raise opened
        known.append(opened.manifest.segment)
        replaced |= set(opened.manifest.replaces)
        if opened.manifest.segment.id != segment.id:
            raise DataCorruptionError(
                "this is another segment's manifest; restore the object from a copy of the bucket",
                path=f"{objects.store.url}/{opened.manifest.name}",
            )
    ids = {segment.id for segment in doubtful}
    plain = [segment for segment in segments if segment.id not in ids]
    # Names and listings have no leader epochs, by which the manifests of overlapping copies are
    # compared.
    with_key_id = not_superseded(segment for segment in known if segment.id not in replaced)
    return sorted([*plain, *with_key_id], key=lambda s: s.base)


def _overlapping(segments: list[RemoteSegment]) -> list[RemoteSegment]:
    """Return the segments (sorted by base) that overlap another segment."""
    overlapping: dict[str, RemoteSegment] = {}
    widest: RemoteSegment | None = None
    for segment in segments:
        if widest is not None and segment.base < widest.end:
            overlapping[widest.id] = widest
            overlapping[segment.id] = segment
        if widest is None or segment.end > widest.end:
            widest = segment
    return list(overlapping.values())
