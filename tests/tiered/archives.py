"""What a reader of both tiers must find: each committed record, in a local file or in a copy."""

from __future__ import annotations

import sparklog
from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.format.records import Decoder
from sparklog.format.scan import scan
from sparklog.fs import read_bytes
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.log import view_of
from sparklog.log.read_retry import PartitionRead
from sparklog.logdir.home import commits_of
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.storage.view import View
from sparklog.testing.faultstore import Bucket
from sparklog.tiered.archive.view import ArchiveView
from sparklog.tiered.layout.manifest import directory_of, log_object, manifest_object, parse
from sparklog.tiered.layout.object_names import log_start_name
from sparklog.tiered.layout.topic_owners import PREFIX
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer
from sparklog.tiered.remote_segment import RemoteSegment
from sparklog.tiered.settings import read_settings
from tests.tiered.buckets import tiered_view

Records = dict[int, bytes]


def records(raw: bytes, path: str) -> Records:
    """The records of the whole, valid batches of a segment's log."""
    found = scan(raw, path=path)
    decoder = Decoder(["offset", "value"])
    decoder.add_many(raw, found.table, path=path)
    rows = decoder.finish()
    pairs = zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True)
    return dict(pairs)


def catalog_of(log: sparklog.Log, clock: Clock) -> RemoteLogMetadataCache:
    return RemoteLogMetadataConsumer(view_of(log), clock).catch_up()


def copies_of(log: sparklog.Log, clock: Clock) -> list[RemoteSegment]:
    """All copies in any state."""
    catalog = catalog_of(log, clock)
    keys = catalog.keys()
    return [s for key in keys for s in catalog.all(key)]


def objects_wanted(log: sparklog.Log, clock: Clock) -> set[str]:
    """What must be in the bucket, and nothing else: two objects a copy, and log starts within.

    And whose the topics are, and the log's own token.
    """
    catalog, wanted = catalog_of(log, clock), set()
    settings = read_settings(commits_of(log).fs, commits_of(log).home)
    if settings is not None and settings.log_id:
        wanted.add(PREFIX + settings.log_id)
    for segment in copies_of(log, clock):
        wanted |= {manifest_object(segment), log_object(segment)}
    for name, topic in log.topics().items():
        if topic.config.remote_storage_enable:
            wanted.add(PREFIX + topic.id)
        for p, (start, _) in log.offsets(name).items():
            copies = catalog.readable((topic.id, p))
            if any(copy.base < start < copy.end for copy in copies):
                wanted.add(directory_of(copies[0]).prefix + log_start_name(start))
    return wanted


def copied_names(bucket: Bucket) -> list[str]:
    """The objects that there are, but for those that say whose they are."""
    return [name for name in bucket.names() if not name.startswith(PREFIX)]


def readable(log: sparklog.Log, clock: Clock, store: Store) -> dict[tuple[str, int], Records]:
    """Return all records from the log starts on; fails if an offset is missing in both tiers.

    Copies count by what the metadata says, their objects must say the same, and what both tiers
    hold must be the same.
    """
    fs, catalog, found = commits_of(log).fs, catalog_of(log, clock), {}
    for name, topic in log.topics().items():
        for p, directory in topic.dirs.items():
            start, end = log.offsets(name)[p]
            local: Records = {}
            for base in segment_bases(fs, directory):
                path = joined(directory, f"{base:020d}.log")
                local |= records(read_bytes(fs, path), path)
            whole = dict(local)
            for segment in catalog.readable((topic.id, p)):
                if segment.end > start:
                    for offset, value in _copied(store, segment).items():
                        assert whole.setdefault(offset, value) == value, offset
            missing = set(range(start, end)) - whole.keys()
            assert not missing, f"{name}-{p}: {sorted(missing)} of [{start}, {end})"
            with commits_of(log).exclusive():
                local_start = commits_of(log).state.local_start(name, p)
            assert set(range(local_start, end)) <= local.keys()
            found[name, p] = {offset: whole[offset] for offset in range(start, end)}
    assert through_tiers(log, clock, store) == found
    return found


def through_tiers(log: sparklog.Log, clock: Clock, store: Store) -> dict[tuple[str, int], Records]:
    """Return what readers of the log dir get, wherever its segments lie; each record once."""
    fs, directories = commits_of(log).fs, commits_of(log).directories
    objects = RemoteObjects(lambda: store, BlockCache(1 << 20))
    return _read(tiered_view(directories, objects, fs, clock=clock))


def archived(store: Store) -> dict[tuple[str, int], Records]:
    """Return what readers of the bucket alone get; each record once."""
    objects = RemoteObjects(lambda: store, BlockCache(1 << 20))
    return _read(ArchiveView(store.url, objects))


def _read(view: View) -> dict[tuple[str, int], Records]:
    found: dict[tuple[str, int], Records] = {}
    schema = schema_of(["offset", "value"])
    for name, topic in view.topics().items():
        keys = [TopicPartition(name, p) for p in topic.dirs]
        for (_, p), (start, end) in view.spans(keys).items():
            held: Records = {}
            for rows in read_partition(PartitionRead(view, name, p, start, end), schema):
                pairs = zip(*(rows.column(at).to_pylist() for at in (0, 1)), strict=True)
                for offset, value in pairs:
                    assert offset not in held
                    held[offset] = value
            found[name, p] = held
    return found


def _copied(store: Store, segment: RemoteSegment) -> Records:
    manifest, _ = parse(store.get(manifest_object(segment)), path="m")
    assert (manifest.segment.base, manifest.segment.end) == (segment.base, segment.end)
    raw = store.get(log_object(segment))
    assert len(raw) == manifest.stored_size
    held = records(raw, "copy")
    assert sorted(held) == list(range(segment.base, segment.end))
    return held
