"""Buckets in memory for the tests of reading, packed here by hand from partitions on disk."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import crc32c

import sparklog
from sparklog.clock import system_clock
from sparklog.config import LogOptions
from sparklog.format.checkpoint_files import format_epochs, parse_partition_metadata
from sparklog.format.names import parse_partition_dir, snapshot_name
from sparklog.fs import LOCAL, FileSystem, read_bytes
from sparklog.log.log import Log
from sparklog.log.offset_lookup import Lookup
from sparklog.log.time_lookup import TimeLookup
from sparklog.logdir.home import open_log
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.segment_files import segment_bases
from sparklog.logdir.view import LogDirView
from sparklog.storage.leader_epochs import clipped
from sparklog.tiered.archive.home import ArchiveHome
from sparklog.tiered.archive.view import ArchiveView
from sparklog.tiered.layout.manifest import Manifest, packed, to_bytes
from sparklog.tiered.object_store.store import StoredObject
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.reading.tiered_segments import RemoteTier
from sparklog.tiered.remote_log_metadata.topic import LogCopies
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState, new_segment_id
from tests.service.logs import SMALL, fill


class DictStore:
    """Objects in a dict; notes every request as (kind, name, bytes)."""

    url = "dict://bucket"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.requests: list[tuple[str, str, int]] = []
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> None:
        with self._lock:
            self.objects[name] = data
            self.times.setdefault(name, 1000 + len(self.times))

    def put_stream(self, name: str, pieces: Iterable[bytes], size: int) -> None:
        self.put(name, b"".join(pieces))

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = 0
    ) -> bytes:
        if name not in self.objects:
            raise FileNotFoundError(name)
        data = self.objects[name][start:end]
        self.requests.append(("get", name, len(data)))
        return data

    def get_many(self, names: Sequence[str], *, limit: int = 0) -> list[bytes | Exception]:
        found: list[bytes | Exception] = []
        for name in names:
            try:
                found.append(self.get(name))
            except FileNotFoundError as error:
                found.append(error)
        return found

    def list(self, prefix: str = "") -> list[StoredObject]:
        self.requests.append(("list", prefix, 0))
        return [
            StoredObject(name, len(data), self.times[name])
            for name, data in sorted(self.objects.items())
            if name.startswith(prefix)
        ]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.objects.pop(name, None)

    def sweep_uploads(self, before_ms: int, prefix: str = "") -> int:
        return 0


def objects(store: DictStore) -> RemoteObjects:
    return RemoteObjects(lambda: store, BlockCache(64 << 20))


def archive_log(url: str, found: RemoteObjects, **options: Any) -> Log:
    """Open a bucket alone."""
    home = ArchiveHome(ArchiveView(url, found, **options))
    return Log(home, options=LogOptions.parse({}), clock=system_clock)


def small_archive(directory: Path) -> Log:
    """Open the archive of a small log with topic t."""
    path, store = directory / "log", DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=SMALL)
        fill(log, "t", 0, 20)
    copy_partition(path / "t-0", store)
    return archive_log(store.url, objects(store))


def tiered_view(
    directories: Sequence[str], found: RemoteObjects, fs: FileSystem = LOCAL, **given: Any
) -> LogDirView:
    """Look at log dirs with the copies that their metadata tells of."""
    tier = RemoteTier(found, LogCopies(fs, directories, **given))
    return LogDirView(fs, directories, remote=tier)


def tiered_log(path: str | Path, found: RemoteObjects) -> Log:
    """Open a log dir with its copies."""
    return open_log(path, view=lambda: tiered_view([str(path)], found))


def copy_partition(
    path: Path,
    store: DictStore,
    *,
    end: int | None = None,
    gaps: bool = False,
    config: Mapping[str, object] = {"retention.ms": -1},
) -> list[RemoteSegment]:
    """Copy the segments of a partition directory, up to `end` or but for the last one."""
    where = str(path)
    key = parse_partition_dir(path.name)
    assert key is not None
    metadata = read_bytes(LOCAL, f"{where}/partition.metadata")
    topic_id = parse_partition_metadata(metadata, where).topic_id
    bases = segment_bases(LOCAL, where)
    edges = bases if end is None else [*bases, end]
    times = TimeLookup(Lookup(LogDirSegments(LOCAL, where, gaps=True)))
    made = []
    for base, following in zip(bases, edges[1:], strict=False):
        log = (path / f"{base:020d}.log").read_bytes()
        parts = {
            suffix: (path / f"{base:020d}{suffix}").read_bytes()
            for suffix in (".index", ".timeindex", ".txnindex")
            if (path / f"{base:020d}{suffix}").exists()
        }
        if (path / snapshot_name(following)).exists():
            parts[".snapshot"] = (path / snapshot_name(following)).read_bytes()
        epochs = [entry for entry in read_epochs(LOCAL, where) if entry[1] < following]
        parts["leader-epoch-checkpoint"] = format_epochs(epochs)
        segment = RemoteSegment(
            topic=key[0],
            topic_id=topic_id,
            partition=key[1],
            id=new_segment_id(),
            base=base,
            end=following,
            max_timestamp=times._of(base, following).timestamp,
            size=len(log),
            epochs=tuple(clipped(epochs, start=base)),
            state=SegmentState.COPY_FINISHED,
            time_ms=1000 + len(store.objects),
            has_txn_index=".txnindex" in parts,
        )
        store_segment(store, segment, log, parts, gaps=gaps, config=config)
        made.append(segment)
    return made


def store_segment(
    store: DictStore,
    segment: RemoteSegment,
    log: bytes,
    parts: dict[str, bytes],
    *,
    gaps: bool = False,
    replaces: tuple[str, ...] = (),
    config: Mapping[str, object] = {"retention.ms": -1},
) -> None:
    places, body = packed(parts)
    manifest = Manifest(
        segment=segment,
        config={key: str(value) for key, value in config.items()},
        crc32c=crc32c.crc32c(log),
        stored_size=len(log),
        stored_crc32c=crc32c.crc32c(log),
        parts=places,
        gaps=gaps,
        replaces=replaces,
    )
    store.put(manifest.log_name, log)
    store.put(manifest.name, to_bytes(manifest, body))
