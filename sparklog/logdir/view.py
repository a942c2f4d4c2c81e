"""Read a log dir's partitions, log starts and high watermarks from files alone, without a lock.

Log starts and watermarks come from a single file (in a broker's directory, starts are read first),
so start <= watermark is always true. If the watermark file can't be read, the valid prefix of the
ledger gives the ends. A directory without a ledger is a broker's: the broker's high watermarks
count (or, on request, all valid bytes).
Source: PROTOCOL, "Read".
"""

import logging
import os
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from sparklog.clock import attempts
from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    PartitionOfflineError,
    UnknownTopicError,
)
from sparklog.format.checkpoint_files import PartitionMetadata, parse_partition_metadata
from sparklog.format.names import PARTITION_METADATA, parse_partition_dir
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.listed_view import ListedView
from sparklog.log.partition_reader import PartitionReader
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.broker_lockout import is_marked_open, was_closed_by_us
from sparklog.logdir.erasures_file import LastErasure
from sparklog.logdir.high_watermarks import (
    WATERMARKS_NAME,
    Published,
    PublishedFile,
    published,
)
from sparklog.logdir.ledger import (
    LEDGER,
    LEDGER_TOPIC,
    fold,
    has_ledger,
    state_now,
    whole_end,
)
from sparklog.logdir.lock import State, peek
from sparklog.logdir.log_dir_identity import LogDirIdentity
from sparklog.logdir.log_dirs import (
    RENAME_BACK,
    find_dirs,
    not_found,
    not_of_log,
    offline_error,
)
from sparklog.logdir.offline_partitions import stored_metadata, why_foreign
from sparklog.logdir.offset_checkpoints import HIGH_WATERMARK, LOG_START, Offsets, read_offsets
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.repair_advice import rebuilt_by_repair
from sparklog.logdir.segment_files import SegmentListing, is_partition
from sparklog.logdir.topics_file import TOPICS_NAME, read_topics
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import LocalFiles, PartitionSegments, StaleReadError
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo, unknown_partition

_LOGGER: Final = logging.getLogger(__name__)
_PATIENCE_MS: Final = 20  # before the ledger is folded because watermarks are missing
UNTIL: Final = ("high-watermark", "log-end")


def check_until(until: str) -> None:
    """Raise InvalidRequestError unless `until` is one of UNTIL, the possible ends of a view."""
    if until not in UNTIL:
        raise InvalidRequestError(f"until={until}: until must be {' or '.join(UNTIL)}")


class RemoteStorage(Protocol):
    """A reader's access to the remote copies of a log dir's segments."""

    def segments(self, local: LogDirSegments) -> PartitionSegments:
        """Return a partition's segments, local and remote."""

    def set_following(self) -> None:
        """Wait longer for an unavailable store, as a reader of new records does."""


class LogDirView(ListedView[str]):
    """A reader's view of a log in log dirs, from files alone and without a lock.

    Listings are cached until `refresh`; offsets are never cached. Each use first checks whether the
    log dirs were replaced, and if so clears all caches.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[str],
        *,
        until: str = "high-watermark",
        remote: RemoteStorage | None = None,
    ) -> None:
        check_until(until)
        super().__init__(directories[0])
        self._fs, self._directories, self._until = fs, list(directories), until
        self._remote = remote
        self._paths: dict[TopicPartition, str] = {}
        self._missing: dict[TopicPartition, tuple[str, str]] = {}
        self._identity = LogDirIdentity(fs, self._directories)
        self._published = PublishedFile(fs, self.home)
        self._is_published_current = False
        self._last_erasure = LastErasure(fs, self.home)
        self.refresh()

    @property
    def directories(self) -> list[str]:
        return list(self._directories)

    def renew(self) -> int:
        """Clear all caches if a log dir was replaced; return the view's `incarnation`.

        The incarnation is a number that increases with each replacement. If records were erased,
        open segments are closed. Cost: a stat per log dir, and another stat.
        """
        # An erasure rewrites closed segments, and an open file would still show the erased records.
        if self._last_erasure.is_new():
            self._cached = {}
        if self._forget_replaced():
            self._list()
        return self.incarnation

    def _forget_replaced(self) -> bool:
        if self._identity.is_current():
            return False
        self._identity.renew()  # first, so that later reads are at least as new
        self._paths, self._cached = {}, {}
        self.incarnation += 1
        _LOGGER.info("%s was replaced; reading the new log", self.home)
        return True

    def refresh(self) -> None:
        """List the log dirs again. Cost: per log dir, a listing and a small file or two."""
        self._forget_replaced()
        self._list()

    def _list(self) -> None:
        self._dirs = find_dirs(self._fs, self._directories)
        for _ in attempts(_PATIENCE_MS):
            self._guarded = is_marked_open(self._fs, self.home)
            self._written = self._read_topics()
            self._paths = self._listed()
            known = self._written or {}
            missing = not_found(known, self._paths, self._dirs, is_ours=self._is_ours)
            self._missing = {TopicPartition(*key): what for key, what in missing.items()}
            # A dropped topic is removed from the file first, then from the disk.
            if not self._missing or self._written == self._read_topics():
                break
        paths = self._paths
        self._keep_cached(lambda key, segments: paths.get(key) == segments.where)
        for key, cached in list(self._cached.items()):
            cached.segments.gaps = self._has_gaps(key.topic)

    def _read_topics(self) -> dict[str, TopicState] | None:
        """Return the topics. If sparklog's topics file is missing, read them from the ledger.

        Returns None for a broker's directory. Cost: without the file, a ledger segment is read.
        """
        written = read_topics(self._fs, self.home)
        if written is not None or not has_ledger(self._fs, self.home) or not self._is_ours():
            return written
        try:
            return state_now(self._fs, self.home).topics
        except DataCorruptionError as error:
            _LOGGER.warning(
                "%s has no %s, and its ledger can't replace it (%s): topics are read without "
                "their configs", self.home, TOPICS_NAME, error,
            )  # fmt: skip
            return None

    def _listed(self) -> dict[TopicPartition, str]:
        """Return {partition: directory}, from a listing of the available log dirs.

        If two log dirs have a directory of the same partition, the ledger decides.
        """
        paths: dict[TopicPartition, str] = {}
        for number, directory in enumerate(self._directories):
            if number in self._dirs.absent:
                continue
            try:
                names = self._fs.listdir(directory)
            except FileNotFoundError:
                if 0 < number < len(self._dirs.known):
                    continue  # has no partition yet
                raise InvalidRequestError(
                    f"{directory} does not exist: use the path of a log's directory, or open the "
                    "path for writing, which creates a log there"
                ) from None
            for name in names:
                key = parse_partition_dir(name)
                if key is None or not self._fs.is_dir(os.path.join(directory, name)):
                    continue
                if key not in paths or self._number(key) == number:
                    paths[key] = os.path.join(directory, name)
        return paths

    def _number(self, key: TopicPartition) -> int | None:
        known = self._state(key.topic)
        return None if known is None else known.dirs.get(key.partition)

    def _is_ours(self) -> bool:
        """Return True if no broker wrote to the log since sparklog's last session."""
        own = self._dirs.own
        return is_marked_open(self._fs, self.home) or was_closed_by_us(self._fs, own)

    def offline(self) -> dict[TopicPartition, DataCorruptionError]:
        """Return {partition: error} of missing and damaged partitions. Takes no lock.

        Using such a partition raises the error. Missing partitions are detected immediately; damage
        found by recovery is known until a reboot.
        """
        page = peek(self._fs, self.home)
        found = {} if page is None else page.offline
        known = {TopicPartition(name, p) for name, info in self.topics().items() for p in info.dirs}
        damaged = {TopicPartition(*key): error for key, error in found.items() if key in known}
        return {**damaged, **self.missing()}

    def missing(self) -> dict[TopicPartition, PartitionOfflineError]:
        """Return {partition: error} of partitions without a directory, or with another's directory.

        The result is current. Cost: a listing of the log dirs, and a small file for each partition.
        """
        self.refresh()
        found = {key: self._offline_error(key) for key in self._missing}
        for key, path in [*self._paths.items()]:
            known = self._state(key.topic)
            topic_id = None if known is None else known.id
            try:
                if why_foreign(stored_metadata(self._fs, path), key, topic_id) is not None:
                    self._check_owner(key)
            except PartitionOfflineError as error:
                found[key] = error
            except DataCorruptionError:
                continue  # the file is damaged: readers of the partition get the error
        return found

    def _offline_error(self, key: TopicPartition, why: str = "") -> PartitionOfflineError:
        marks = published(self._fs, self.home) or Published({}, {}, 0)
        start, end = marks.starts.get(key, 0), marks.ends.get(key, 0)
        if key in self._missing:
            return offline_error(*self._missing[key], start, end)
        path, known = self._paths[key], self._state(key.topic)
        if known is not None and key.partition not in known.dirs:
            return not_of_log(path, why, key)
        return offline_error(path, why, start, end, remedy=RENAME_BACK)

    def local_files(self, key: TopicPartition) -> LocalFiles | None:
        """Return a partition's segment files, or None without any; see `View.local_files`."""
        listing = self.of_partition(*key, self._listing)  # checks the log dirs first
        identities = self._identity.files()
        try:
            bases = listing.bases()
        except FileNotFoundError:
            return None
        if identities is None or not bases:
            return None
        return LocalFiles(listing.directory, bases, listing.gaps, identities)

    def _listing(self, segments: PartitionSegments) -> SegmentListing:
        return SegmentListing(self._fs, segments)

    def set_following(self) -> None:
        """From now on, wait longer for unavailable remote storage; see `View.set_following`."""
        if self._remote is not None:
            self._remote.set_following()

    def forget(self) -> None:
        """Discard the listing of partitions, because some were added or removed."""
        self._paths = {}

    def _described(self) -> dict[str, TopicInfo]:
        found: dict[str, dict[int, str]] = {}
        missing = {key: path for key, (path, _) in self._missing.items()}
        for (topic, partition), path in sorted({**self._paths, **missing}.items()):
            if topic not in INTERNAL:
                found.setdefault(topic, {})[partition] = path
        topics: dict[str, TopicInfo] = {}
        ids: dict[str, str | None] = {}
        for name, dirs in found.items():
            state = self._state(name)
            if state is None and self._written is not None and self._guarded:
                # Not committed yet; or dropped, but its directories are not renamed yet.
                continue
            if state is not None:
                dirs = {p: path for p, path in dirs.items() if p in state.dirs}
            else:  # a broker's partitions, or other directories
                dirs = {p: path for p, path in dirs.items() if is_partition(self._fs, path)}
                if not dirs:
                    continue
            config = TopicConfig() if state is None else state.parsed()
            topic_id = self._stored_id(name, min(dirs)) if state is None else state.id
            missing_partitions = [p for p in dirs if (name, p) in missing] if missing else []
            why = {p: self._offline_error(TopicPartition(name, p)) for p in missing_partitions}
            topics[name] = TopicInfo(name, topic_id or "", max(dirs) + 1, config, dirs, why)
            ids[name] = topic_id
        # The segments of former topics with these names had the same paths.
        self._keep_cached(
            lambda key, segments: segments.topic_id in (None, ids.get(key.topic, segments.topic_id))
        )
        return topics

    def _topic_names(self) -> Collection[str]:
        return {topic for topic, _ in self._paths}

    def _state(self, topic: str) -> TopicState | None:
        return (self._written or {}).get(topic)

    def _numbers(self, topic: str) -> Collection[int]:
        return {p for t, p in (*self._paths, *self._missing) if t == topic}

    def _find(self, key: TopicPartition) -> str | None:
        return self._paths.get(key)

    def _error_without(self, key: TopicPartition) -> DataCorruptionError | UnknownTopicError:
        if key in self._missing:
            return self._offline_error(key)
        return unknown_partition(self, *key)

    def _open(self, key: TopicPartition, place: str) -> PartitionSegments:
        self._check_owner(key)
        topic_id = self.topic_id(*key)  # first, because it lists again if the partition moved
        if topic_id is None and (state := self._state(key.topic)) is not None:
            topic_id = state.id  # partition.metadata is missing; remote segments need the id
        if key not in self._paths:
            raise self._error_without(key)
        local = LogDirSegments(
            self._fs, self._paths[key], gaps=self._has_gaps(key.topic), topic_id=topic_id
        )
        if self._remote is None or key.topic in INTERNAL:
            return local
        return self._remote.segments(local)

    def _reader(self, key: TopicPartition) -> PartitionReader:
        return self.of_partition(*key, PartitionReader)

    def _check_owner(self, key: TopicPartition) -> None:
        """Raise PartitionOfflineError if a partition's directory belongs to another partition."""
        if self._why_foreign(key) is None:
            return
        self.refresh()  # it may have been moved or created again since the listing
        why = self._why_foreign(key)
        if why is not None:
            raise self._offline_error(key, why)

    def _why_foreign(self, key: TopicPartition) -> str | None:
        """Return why a partition's directory is another partition's; None without a reason."""
        found, known = self._metadata(*key), self._state(key.topic)
        why = why_foreign(found, key, None if known is None else known.id)
        if why is not None and not self._is_ours():  # a broker may have created the topic again
            why = why_foreign(found, key, None)
        return why

    def _has_gaps(self, topic: str) -> bool:
        """Return True if offsets of a topic may be missing, because it is compacted.

        A topic that a broker wrote to may have been compacted before.
        """
        if topic == LEDGER_TOPIC:
            return False
        known = self._state(topic)
        return known is None or known.adopted or known.parsed().compact

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return the current topic id in a partition's directory, if it exists.

        Raises:
            PartitionOfflineError: The directory is another partition's.
        """
        found, key = self._metadata(topic, partition), TopicPartition(topic, partition)
        if found is None:
            known = self._state(topic)
            return known.id if known and key in self._missing else None
        why = why_foreign(found, key, None)
        if why is not None:
            raise self._offline_error(key, why)
        return found.topic_id

    def _stored_id(self, topic: str, partition: int) -> str | None:
        found = self._metadata(topic, partition)
        return None if found is None else found.topic_id

    def _metadata(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Return the current metadata in a partition's directory; None without a metadata file."""
        key = TopicPartition(topic, partition)
        for again in (False, True):
            if again or key not in self._paths:
                self.refresh()  # created or moved since the listing
            path = self._paths.get(key)
            if path is None:
                return None
            name = os.path.join(path, PARTITION_METADATA)
            try:
                raw = read_bytes(self._fs, name)
                if not raw and self._is_being_made(topic):
                    return None
                return parse_partition_metadata(raw, path=name)
            except FileNotFoundError:
                continue
            except DataCorruptionError as error:
                raise rebuilt_by_repair(error) from error
        return None

    def _is_being_made(self, topic: str) -> bool:
        """Return True if a session is creating the topic, so that files may still be empty."""
        self.refresh()
        return self._guarded and self._written is not None and topic not in self._written

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the current {(topic, partition): (log start offset, high watermark)}.

        Cost: a small file or two, and a listing of each partition that isn't cached.
        """
        self.renew()
        guarded = is_marked_open(self._fs, self.home)
        starts, ends = self._marks(keys) if guarded else self._brokers_marks(keys)
        # An unpublished partition starts at its base, which may be a former topic's end.
        first = {
            key: starts[key] if key in starts else self.bases(key.topic).get(key.partition, 0)
            for key in keys
        }
        ours = guarded or was_closed_by_us(self._fs, self._dirs.own)
        for key in first:
            # A broker may have deleted segments since. sparklog raises the log start first.
            # Missing segments of a tiered topic are remote: if they are unavailable, that is
            # an error and not a later start.
            brokers = not (ours or self._is_tiered(key.topic) or key in self._missing)
            if key == LEDGER or brokers:
                first[key] = max(first[key], self._first_base(key))
        # A partition that is not published yet is new: none of its records is committed.
        return {key: (first[key], max(first[key], ends.get(key, 0))) for key in keys}

    def _is_tiered(self, topic: str) -> bool:
        known = self._state(topic)
        return known is not None and known.parsed().remote_storage_enable

    def _first_base(self, key: TopicPartition) -> int:
        try:
            return self._reader(key).first_base()
        except StaleReadError:
            self.refresh()  # created again elsewhere, or deleted
            try:
                return self._reader(key).first_base()
            except StaleReadError as error:
                topic, partition = key
                raise UnknownTopicError(f"{topic}-{partition} was deleted") from error

    def _marks(self, keys: Sequence[TopicPartition]) -> tuple[Offsets, Offsets]:
        """Return log starts and high watermarks of a log that is open, or was not closed.

        If the published file can't be used, they come from the ledger.
        """
        for _ in attempts(_PATIENCE_MS):
            marks = self._current_marks()
            if marks is not None:
                return marks.starts, marks.ends
        # The watermarks are missing or outdated. The complete records of the ledger are the
        # commits; the result is the same as after the recovery that the next writer makes.
        state = LogState()
        end = whole_end(self._fs, self.home)
        fold(self._fs, self.home, end, state=state, first=None)
        starts = self._brokers_starts()  # the record that raised a start may be damaged
        starts |= {key: max(at, starts.get(key, 0)) for key, at in state.starts.items()}
        return starts, {**state.ends, LEDGER: end}

    def _current_marks(self) -> Published | None:
        """Return the published log starts and high watermarks; None if they can't be used.

        They can't be used if the file is damaged, or older than the last commit. A lock page with
        state IDLE was written after the marks of its ledger end, so the two are compared, once, at
        the first use.
        """
        if self._is_published_current:
            return self._published.read()
        page = peek(self._fs, self.home)  # first, because a writer may publish
        marks = self._published.read()
        if marks is None:
            return None
        if page is not None and page.state is State.IDLE:
            end = marks.ends.get(LEDGER, 0)
            if end < page.ledger_end:
                _LOGGER.warning(
                    "%s: %s has ledger end %d, but the log has %d: reading by the ledger",
                    self.home, WATERMARKS_NAME, end, page.ledger_end,
                )  # fmt: skip
                return None
        self._is_published_current = True
        return marks

    def _brokers_starts(self) -> Offsets:
        starts: Offsets = {}
        for directory in self._dirs.present:
            starts |= read_offsets(self._fs, directory, LOG_START)
        return starts

    def _checked_starts(self, keys: Sequence[TopicPartition]) -> tuple[Offsets, Published | None]:
        """Return the log starts in Kafka's files, and the contents of sparklog's own file.

        Kafka's files have no checksum. A log start never decreases, so a lower or missing log start
        is damage, and the log start that sparklog published at its close counts. A higher log start
        may be a broker's.

        Raises:
            DataCorruptionError: A log start is higher although no broker has written.
        """
        for _ in attempts(_PATIENCE_MS):  # a session of sparklog may open and close concurrently
            starts, marks = self._brokers_starts(), published(self._fs, self.home)
            if marks is None:
                return starts, None
            above = [key for key in keys if starts.get(key, 0) > marks.starts.get(key, 0)]
            own = self._dirs.own
            if not (above and was_closed_by_us(self._fs, own)):
                sealed = {key: at for key, at in marks.starts.items() if self._is_same(key)}
                return {k: max(starts.get(k, 0), sealed.get(k, 0)) for k in keys}, marks
            key = above[0]
            damage = DataCorruptionError(
                f"{key} has the log start {starts[key]} in this file, but had "
                f"{marks.starts.get(key, 0)} when the log was closed; open the log once for "
                "writing",
                path=self._beside(key, LOG_START),
            )
        raise damage

    def _beside(self, key: TopicPartition, name: str) -> str:
        """Return the path of the file `name` in the log dir that contains a partition."""
        return os.path.join(os.path.dirname(self._paths[TopicPartition(*key)]), name)

    def _is_same(self, key: TopicPartition) -> bool:
        """Return True if a partition's directory has the topic id of sparklog's topics file."""
        known = self._state(key.topic)
        return known is not None and self.topic_id(*key) == known.id

    def _brokers_marks(self, keys: Sequence[TopicPartition]) -> tuple[Offsets, Offsets]:
        """Return log starts and high watermarks from Kafka's files: a broker may have written.

        If the log has no file of high watermarks, or the view reads up to the log end, all valid
        batches count.

        Raises:
            DataCorruptionError: A high watermark is lower than at sparklog's last close.
        """
        starts, marks = self._checked_starts(keys)
        ends: Offsets = {}
        for directory in self._dirs.present:
            try:
                ends |= read_offsets(self._fs, directory, HIGH_WATERMARK)
            except DataCorruptionError:
                if self._until == "high-watermark":
                    raise
        sealed = {} if marks is None else marks.ends
        missing = {key: sealed.get(key, 0) for key in keys if key in self._missing}
        # Without the file of high watermarks (a broker was killed before its first checkpoint), all
        # valid bytes count.
        if self._until == "log-end" or not ends:
            available = [key for key in keys if key not in missing]
            return starts, missing | {key: self._reader(key).valid_end() for key in available}
        ends |= dict(missing.items())
        for key, mark in sealed.items():
            if key in keys and ends.get(key, -1) < mark and self._is_same(key):
                raise DataCorruptionError(
                    f"{key} has the high watermark {ends.get(key)} in this file, but had "
                    f"{mark} when the log was closed; open the log once for writing",
                    path=self._beside(key, HIGH_WATERMARK),
                )
        return starts, ends
