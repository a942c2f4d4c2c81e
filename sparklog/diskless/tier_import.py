"""Creates a log in a bucket from remote segments after the loss of their log dir.

The store copies closed segments byte for byte under their existing ids; encrypted segments stay
encrypted, because their keys are bound to the ids. Topics keep their ids; the leader epoch is above
all existing epochs, so that readers of later, lost records notice. Data that existed only in the
log dir (its last segments, writers' last micro-batches, positions of groups) are lost.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparklog.common import TopicPartition
from sparklog.diskless.entries import Epochs, ObjectKey, ProducerBatch
from sparklog.diskless.extents import segment_extent
from sparklog.diskless.import_objects import BucketTarget, NewLog, NewObject, NewPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
)
from sparklog.format.names import SNAPSHOT
from sparklog.format.producer_snapshot import ProducerEntry, parse_snapshot
from sparklog.log.copied_log import chosen_topics, copied_config, copied_state, copy_all
from sparklog.storage.leader_epochs import new_epoch
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState
from sparklog.tiered.archive.listing import BucketListing
from sparklog.tiered.layout.manifest import (
    MANIFEST_BYTES_MAX,
    Manifest,
    log_object,
    manifest_object,
    parse_of,
)
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment

_LINE_BYTES: Final = 64 << 10  # of a manifest's first line, unless its configs are very long
_KEEP: Final = {"retention.ms": "-1"}  # else the next round could delete restored records


@dataclass(frozen=True, slots=True)
class _Part:
    """A partition of remote segments: its valid copies, with the first lines of their manifests."""

    key: TopicPartition
    start: int
    end: int
    manifests: list[Manifest]


def plan_tier_import(
    objects: RemoteObjects,
    target: BucketTarget,
    log_id: str,
    *,
    topics: Collection[str] | None = None,
) -> NewLog:
    """Plan the log that is created in `target` from the remote segments of `objects`.

    Cost: a listing of the bucket, and a request per copy.

    Raises:
        InvalidRequestError: There are no remote segments; a broker's transactions are open; a key
            is missing.
        UnknownTopicError: A topic or partition does not exist.
        DataCorruptionError: A manifest is damaged, or copies are missing between others.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    source = objects.store
    listing = BucketListing(objects)
    directories = listing.all()
    held = {key.topic for key in directories}
    if not held:
        raise InvalidRequestError(
            f"{source.url} contains no archive: pass the URL to which closed segments are copied "
            "(`sparklog serve --remote URL`)",
            path=source.url,
        )
    names = chosen_topics(source.url, held, topics)
    keys = sorted(key for key in directories if key.topic in names)
    copies = {key: listing.segments(key) for key in keys}
    lines = _lines(source, [segment for key in keys for segment in copies[key]], target.threads)
    parts = []
    for key in keys:
        start, end = listing.span(key)
        found = [lines[segment.id] for segment in copies[key] if segment.end > start]
        _check_whole(source.url, key, start, found)
        parts.append(_Part(key, start, end, found))
    latest = max((e for p in parts for e, _ in _epochs(p.manifests)), default=0)
    now = target.clock()
    ends = {part.key: part.end for part in parts}
    states = {name: _topic(name, parts) for name in names}
    for name, topic in states.items():
        for number in topic.dirs:  # partitions without copies
            ends.setdefault(TopicPartition(name, number), 0)
    state = copied_state(
        LogState(ends=ends, idempotent=set(ends)), states,
        starts={part.key: part.start for part in parts}, epoch=new_epoch(latest, now), time_ms=now,
    )  # fmt: skip
    whole = [manifest for part in parts for manifest in part.manifests]
    return NewLog(
        log_id=log_id,
        snapshot=state.snapshot(),
        partitions=[_partition(objects, part) for part in parts],
        objects=[_copied(source, target.store, m.log_name, m.stored_size) for m in whole],
        manifests=[_copied(source, target.store, manifest_object(m.segment), -1) for m in whole],
        keys={
            m.log_name: ObjectKey(m.segment.id, m.encryption, m.segment.size)
            for m in whole if m.encryption is not None
        },
    )  # fmt: skip


def _copied(source: Store, target: Store, name: str, size: int) -> NewObject:
    return NewObject(name, size, lambda: target.copy(source, name, name))


# -- manifests


def _lines(source: Store, segments: Sequence[RemoteSegment], threads: int) -> dict[str, Manifest]:
    """Return {segment id: the first line of its manifest}."""

    def one(segment: RemoteSegment) -> Manifest:
        name = manifest_object(segment)
        path = f"{source.url}/{name}"
        try:
            raw = source.get(name, 0, _LINE_BYTES)
            if b"\n" not in raw and len(raw) == _LINE_BYTES:
                raw = source.get(name, limit=MANIFEST_BYTES_MAX)
        except FileNotFoundError as error:
            raise DataCorruptionError(
                "the manifest was deleted after it was listed: stop the process that deletes "
                "objects there, and call again",
                path=path, first=segment.base, end=segment.end,
            ) from error  # fmt: skip
        manifest, _ = parse_of(segment, raw.partition(b"\n")[0] + b"\n", path=path)
        if manifest.stored_size != segment.size:
            raise DataCorruptionError(
                f"the copy of segment {segment.id} has {segment.size} bytes, but its manifest "
                f"records {manifest.stored_size}; restore the object from a copy of the bucket",
                path=f"{source.url}/{log_object(segment)}", first=segment.base, end=segment.end,
            )  # fmt: skip
        return manifest

    lines = copy_all((partial(one, segment) for segment in segments), threads)
    return {manifest.segment.id: manifest for manifest in lines}


def _check_whole(url: str, key: TopicPartition, start: int, found: Iterable[Manifest]) -> None:
    at = start
    for manifest in found:
        if manifest.segment.base > at:
            raise DataCorruptionError(
                f"{key}: no copy holds these offsets; restore the objects from a copy of the "
                "bucket, or make a log dir of later offsets (`sparklog tier restore URL "
                f"DIR --topic {key.topic} --start ...`)",
                path=url, first=at, end=manifest.segment.base,
            )  # fmt: skip
        at = manifest.segment.end


def _epochs(manifests: Iterable[Manifest]) -> Epochs:
    """Return the leader epochs of consecutive copies together.

    Each manifest lists only the epochs of the copy's own offsets.
    """
    known: list[tuple[int, int]] = []
    for manifest in manifests:
        for epoch, first in manifest.segment.epochs:
            if not known or epoch > known[-1][0]:
                known.append((epoch, first))
    return tuple(known)


def _topic(name: str, parts: Iterable[_Part]) -> TopicState:
    """Return a topic with the id and config of the newest manifest."""
    mine = [part for part in parts if part.key.topic == name]
    newest = max((m for part in mine for m in part.manifests), key=lambda m: m.segment.time_ms)
    config = copied_config(newest.config, keeps_retention=False)
    gaps = any(manifest.gaps for part in mine for manifest in part.manifests)
    dirs = dict.fromkeys(range(max(part.key.partition for part in mine) + 1), 0)
    return TopicState(newest.segment.topic_id, config | _KEEP, dirs, adopted=gaps)


def _partition(objects: RemoteObjects, part: _Part) -> NewPartition:
    return NewPartition(
        key=part.key,
        extents=tuple(segment_extent(m.segment, m.crc32c) for m in part.manifests),
        epochs=_epochs(part.manifests),
        gaps=any(manifest.gaps for manifest in part.manifests),
        producers=_producers(objects, part),
    )


def _producers(objects: RemoteObjects, part: _Part) -> tuple[ProducerBatch, ...]:
    """Return the idempotent producers at the partition's end, so that they can continue.

    Raises:
        InvalidRequestError: A transaction is open, which could never end; or the key of the
            manifest is missing.
    """
    if not part.manifests or SNAPSHOT not in part.manifests[-1].parts:
        return ()
    last = part.manifests[-1].segment
    raw = objects.open(last).part(SNAPSHOT) or b""
    entries = parse_snapshot(raw, f"{objects.store.url}/{manifest_object(last)}") if raw else []
    return producers_of(part.key, entries)


def producers_of(
    key: TopicPartition, entries: Sequence[ProducerEntry]
) -> tuple[ProducerBatch, ...]:
    """Return the producers of a partition that is imported into a log in a bucket.

    Raises:
        InvalidRequestError: A transaction is open. Therefore the last stable offset of each
            partition of such a log is its end, and its cleaner relies on that.
    """
    unfinished = sorted(e.producer_id for e in entries if e.current_txn_first_offset >= 0)
    if unfinished:
        raise InvalidRequestError(
            f"{key} ends within open transactions of producers {unfinished}, which could never end "
            "in the new log, and read_committed readers would never pass them. Leave the topic "
            "out, or restore a range that ends before them to a log dir"
        )
    return tuple(map(batch_of, entries))


def batch_of(entry: ProducerEntry) -> ProducerBatch:
    """Convert a producer's entry in a snapshot to the producer's last batch.

    If the producer's epoch has only markers, the batch ends before it starts.
    """
    is_bare = entry.last_offset < 0
    return ProducerBatch(
        entry.producer_id,
        entry.producer_epoch,
        # Sequence numbers continue at 0 after 2^31 - 1, as in Kafka.
        -1 if is_bare else (entry.last_sequence - entry.offset_delta) & 0x7FFF_FFFF,
        0 if is_bare else entry.last_offset - entry.offset_delta,
        entry.last_offset,
        entry.timestamp,
    )
