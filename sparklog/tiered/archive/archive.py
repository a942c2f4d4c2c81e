"""A bucket alone, shown as a log dir that a broker closed cleanly: reads work on it unchanged.

The small files of a log dir (topics, offsets checkpoints, partition.metadata) are made up from
the listing and one manifest a topic. `View` and what is above it see no difference.
"""

import errno
import logging
from typing import Final

from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.format.checkpoint_files import format_offsets, format_partition_metadata
from sparklog.format.names import (
    EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    parse_partition_dir,
    partition_dir,
)
from sparklog.logdir.offset_checkpoints import HIGH_WATERMARK, LOG_START
from sparklog.logdir.topics import TOPICS_NAME
from sparklog.storage.checksummed_json import seal
from sparklog.storage.log_state import TopicState
from sparklog.tiered.archive.listing import REFRESH_MS, BucketListing
from sparklog.tiered.layout.manifest import manifest_object, parse
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.reading.directory import RemoteDirectory
from sparklog.tiered.reading.readonly import BytesMapping, ReadOnlyFileSystem
from sparklog.tiered.reading.remote_file import BytesFile, refuse
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment

_LOGGER: Final = logging.getLogger(__name__)
_ROOT_FILES: Final = (HIGH_WATERMARK, LOG_START, TOPICS_NAME)


class ArchiveFileSystem(ReadOnlyFileSystem):
    """The file system below one target URL: `sparklog.fs.FileSystem`, read-only."""

    def __init__(self, url: str, objects: RemoteObjects, *, refresh_ms: float = REFRESH_MS) -> None:
        self.url, self.objects = url.rstrip("/"), objects
        self._listing = BucketListing(objects, refresh_ms=refresh_ms)
        self._directories: dict[tuple[str, int], RemoteDirectory] = {}
        self._topics: tuple[frozenset[Directory], bytes] | None = None

    def listdir(self, path: str) -> list[str]:
        """Return the names in the root or in a partition; asks the bucket for news."""
        key = self._key(path)
        if key is None:
            found = self._listing.all(news=True)
            return sorted([*(partition_dir(*each) for each in found), *_ROOT_FILES])
        segments = self._listing.segments(key, news=True)
        if not segments:
            raise self._missing(path)
        directory = self._directories[key] = RemoteDirectory(path, self.objects, segments)
        return sorted([*directory.names(), PARTITION_METADATA, EPOCH_CHECKPOINT])

    def open(self, path: str, *, create: bool = False, write: bool = False) -> BytesFile:
        """Open a file for reading."""
        if create or write:
            refuse(path)
        parent, _, name = path.rpartition("/")
        key = self._key(parent)
        if key is None:
            return BytesFile(path, self._root_file(name, path))
        if name == PARTITION_METADATA:
            found = self._listing.all().get(key)
            if found is None:
                raise self._missing(path)
            return BytesFile(path, format_partition_metadata(found.topic_id))
        if name == EPOCH_CHECKPOINT:
            return BytesFile(path, self._remote(key, parent).epochs())
        return self._remote(key, parent).open(name)

    def map(self, path: str) -> BytesMapping:
        """Return an index, which is in memory anyway."""
        with self.open(path) as file:
            return BytesMapping(file.pread(file.size(), 0))

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory; asks no manifest."""
        if self.is_dir(path):
            return True
        parent, _, name = path.rpartition("/")
        if parent == self.url:
            return name in _ROOT_FILES
        key = self._key(parent)
        if key is None or key not in self._listing.all():
            return False
        return name in (PARTITION_METADATA, EPOCH_CHECKPOINT) or (
            self._remote(key, parent).find(name) is not None
        )

    def is_dir(self, path: str) -> bool:
        """Whether it is the root or a partition."""
        if path.rstrip("/") == self.url:
            return True
        parent, _, name = path.rpartition("/")
        key = parse_partition_dir(name) if parent == self.url else None
        return key is not None and key in self._listing.all()

    def size(self, path: str) -> int:
        """The size in bytes; of a log that is encrypted, that of its object."""
        parent, _, name = path.rpartition("/")
        key = self._key(parent)
        found = None if key is None else self._remote(key, parent).find(name)
        if found is not None and name.endswith(".log"):
            return found[0].size
        with self.open(path) as file:
            return file.size()

    def mtime_ms(self, path: str) -> int:
        """When the segment was copied (ms)."""
        parent, _, name = path.rpartition("/")
        key = self._key(parent)
        found = None if key is None else self._remote(key, parent).find(name)
        if found is None:
            raise self._missing(path)
        return found[0].time_ms

    def changed_ms(self, path: str) -> int:
        """When the segment was copied (ms)."""
        return self.mtime_ms(path)

    def max_timestamp(self, path: str) -> int | None:
        """The largest timestamp of a segment's log, by the listing."""
        parent, _, name = path.rpartition("/")
        key = self._key(parent)
        found = None if key is None else self._remote(key, parent).find(name)
        return None if found is None else found[0].max_timestamp

    def be_patient(self) -> None:
        """Wait for the store as long as a reader that follows does."""
        self.objects.patience.follow()

    def remote_end(self, path: str) -> int | None:
        """The offset behind the partition's last record."""
        key = self._key(path)
        return None if key is None else self._listing.span(key)[1] or None

    def segments(self, topic: str, partition: int) -> list[RemoteSegment]:
        """Return a partition's copies that count, by base offset."""
        return self._listing.segments((topic, partition))

    # --- within ------------------------------------------------------------------------------

    def _key(self, path: str) -> tuple[str, int] | None:
        """The partition of a directory; None for the root. Raises FileNotFoundError."""
        if path.rstrip("/") == self.url:
            return None
        parent, _, name = path.rpartition("/")
        key = parse_partition_dir(name) if parent == self.url else None
        if key is None:
            raise self._missing(path)
        return key

    def _remote(self, key: tuple[str, int], path: str) -> RemoteDirectory:
        known = self._directories.get(key)
        if known is None:
            segments = self._listing.segments(key)
            if not segments:
                raise self._missing(path)
            known = self._directories[key] = RemoteDirectory(path, self.objects, segments)
        return known

    def _root_file(self, name: str, path: str) -> bytes:
        if name == TOPICS_NAME:
            return self._topics_file()
        if name in (HIGH_WATERMARK, LOG_START):
            side = 1 if name == HIGH_WATERMARK else 0
            return format_offsets(
                {key: self._listing.span(key)[side] for key in self._listing.all()}
            )
        raise self._missing(path)

    def _topics_file(self) -> bytes:
        """Topics and their configs, out of the newest manifest of each; kept until they change."""
        partitions: dict[str, dict[int, str]] = {}
        listed = self._listing.all()
        for (topic, partition), directory in listed.items():
            partitions.setdefault(topic, {})[partition] = directory.topic_id
        held = frozenset(listed.values())
        if self._topics is None or self._topics[0] != held:
            self._topics = held, self._described(partitions)
        return self._topics[1]

    def _described(self, partitions: dict[str, dict[int, str]]) -> bytes:
        newest = {}
        for topic, by_number in partitions.items():
            copies = [s for p in by_number for s in self._listing.segments((topic, p))]
            newest[topic] = max(copies, key=lambda s: s.time_ms)
        raws = self.objects.patience.ask(
            lambda: _answered(
                self.objects.store.get_many([manifest_object(s) for s in newest.values()])
            )
        )
        topics = {}
        for (topic, segment), raw in zip(newest.items(), raws, strict=True):
            config, gaps = self._config(topic, manifest_object(segment), raw)
            dirs = dict.fromkeys(sorted(partitions[topic]), 0)
            topics[topic] = TopicState(segment.topic_id, config, dirs, adopted=gaps).to_json()
        return seal("topics", topics)

    def _config(self, topic: str, name: str, raw: bytes | Exception) -> tuple[dict[str, str], bool]:
        """The topic's config and whether offsets may be missing, by a manifest's first line."""
        try:
            if isinstance(raw, Exception):
                raise raw
            manifest, _ = parse(raw, path=f"{self.objects.store.url}/{name}")
        except (FileNotFoundError, DataCorruptionError, InvalidRequestError) as error:
            _LOGGER.warning("%s: its configs are not known (%s)", topic, error)
            return {}, True
        return manifest.config, manifest.gaps

    def _missing(self, path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "not in the archive", path)


def _answered(found: list[bytes | Exception]) -> list[bytes | Exception]:
    """Return what a store answered. Raises StorageUnavailableError if it didn't."""
    for one in found:
        if isinstance(one, StorageUnavailableError):
            raise one
    return found
