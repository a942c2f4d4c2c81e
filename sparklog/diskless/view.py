"""Readers' view of a log in a bucket: the state that results from folding its ledger. No lock.

Offsets and topics are always current: a GET checks for new entries, so a read that starts after a
commit returned sees that commit. Within `metadata_snapshot` all answers describe the same moment,
with a single check. All other answers come from the known state.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.extents import index_of
from sparklog.diskless.names import HOME, entry_name
from sparklog.diskless.plan import DisklessPlan
from sparklog.diskless.process_lock import ProcessLock
from sparklog.diskless.segments import DisklessSegments, PartitionState, partition_state
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, UnknownTopicError
from sparklog.log.topic_names import INTERNAL
from sparklog.storage.segments import PartitionSegments
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import CachedPartition, Offsets, TopicInfo, unknown_partition
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.reading.store_retry import StoreRetry

T = TypeVar("T")
POLL_MS: Final = 250
"""Poll interval of followers (ms); each poll is a GET. Kafka's consumers wait up to 500 ms."""
HOME_MS: Final = 30_000
"""How often to check that the log was not replaced (ms); each check is one additional GET."""
_LOGGER: Final = logging.getLogger(__name__)


class KnownState(Protocol):
    """The folded state of a log, and how to fold newer entries: `ledger.Head`."""

    @property
    def state(self) -> DisklessState:
        """The state as of the newest folded entry: an immutable snapshot."""

    def follow(self, retry: StoreRetry = ...) -> DisklessState:
        """Fold new entries and return the state. Cost: a GET if there are none."""


class DisklessView:
    """Implements `sparklog.storage.view.View`. Makes no request before the first question.

    Args:
        url: the log's URL as the user gave it.
        open_state: opens the log at the URL; for a handle that writes, the head of its commit log.
            Called again if the log was replaced.
    """

    def __init__(
        self,
        url: str,
        objects: ExtentObjects,
        open_state: Callable[[], KnownState],
        *,
        timer: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._url, self.objects, self._open_state = url.rstrip("/"), objects, open_state
        self._timer = timer
        self.incarnation, self.poll_ms = 0, float(POLL_MS)
        self._known: KnownState | None = None
        self._opening = ProcessLock()
        self._checked_ms = 0.0
        self._kept: dict[TopicPartition, CachedPartition] = {}
        self._look = threading.local()

    @property
    def home(self) -> str:
        """The URL."""
        return self._url

    # --- the known state, and new entries --------------------------------------------------------

    @contextlib.contextmanager
    def metadata_snapshot(self) -> Iterator[None]:
        """Give all answers within this context as of the first, with a single check for news."""
        outer = getattr(self._look, "asked", None)
        if outer is None:
            self._look.asked = False
        try:
            yield
        finally:
            self._look.asked = outer

    @property
    def state(self) -> DisklessState:
        """The known state. The first access opens the log."""
        return self._opened().state

    def _opened(self) -> KnownState:
        with self._opening:
            if self._known is None:
                known = self._open_state()
                known.follow(self.objects.remote.retry)
                self._known, self._checked_ms = known, self._timer()
                self._note_asked()
            return self._known

    def news(self) -> DisklessState:
        """Fold new entries and return the state.

        Raises: StorageUnavailableError, DataCorruptionError, UnsupportedVersionError: from the
            ledger; InvalidRequestError: the log does not exist any more.
        """
        if getattr(self._look, "asked", None):
            return self.state
        if self._known is None:
            return self.state  # opening the log has just read the newest entries
        if self._timer() - self._checked_ms >= HOME_MS:
            self.renew_if_replaced()
        state = self._opened().follow(self.objects.remote.retry)
        self._note_asked()
        return state

    def _note_asked(self) -> None:
        if getattr(self._look, "asked", None) is not None:
            self._look.asked = True

    def renew_if_replaced(self) -> None:
        """Reopen the log if another log, or an earlier state of this log, is stored here now.

        Cost: two GETs at the same time.
        """
        known = self._known
        if known is None:
            return
        state = known.state
        names = [HOME] if state.number < 0 else [HOME, entry_name(state.log_id, state.number)]
        ids = state.log_id.encode(), state.entry_id.encode()
        raws = self.objects.remote.retry.call(lambda: self._found(names))
        self._checked_ms = self._timer()
        if not all(each in raw for each, raw in zip(ids, raws, strict=False)):
            _LOGGER.info("another log is stored at %s now; opening it", self._url)
            with self._opening:
                self._known, self._kept = None, {}
                self.objects.entries.clear()
                self.incarnation += 1

    def _found(self, names: Sequence[str]) -> list[bytes]:
        """Return small objects, b"" for a missing object. Raises: StorageUnavailableError."""
        raws = self.objects.store.get_many(names)
        for raw in raws:
            if isinstance(raw, Exception) and not isinstance(raw, FileNotFoundError):
                raise raw
        return [raw if isinstance(raw, bytes) else b"" for raw in raws]

    def renew(self) -> int:
        """Return the `incarnation`. Whether the log was replaced is checked by `news`."""
        return self.incarnation

    def refresh(self) -> None:
        """Fold new entries."""
        self.news()

    def forget(self) -> None:
        """No-op: the state already contains the changes of this process."""

    def local_files(self, key: TopicPartition) -> None:
        """Return None, because no records are stored in files of this host."""

    def set_following(self) -> None:
        """Wait for an unavailable store as long as a follower does."""
        self.objects.remote.retry.set_following()

    # --- topics and offsets ----------------------------------------------------------------------

    def describe(self, name: str, topic: TopicState) -> TopicInfo:
        """Return the user's view of a topic."""
        dirs = {p: self._where(name, p, topic.id) for p in sorted(topic.dirs)}
        return TopicInfo(name, topic.id, max(dirs) + 1, topic.parsed(), dirs)

    def _where(self, topic: str, partition: int, topic_id: str) -> str:
        return f"{self._url}/{Directory(topic, partition, topic_id).prefix[:-1]}"

    def topics(self) -> dict[str, TopicInfo]:
        """Return the topics, as of now."""
        topics = self.news().log.topics
        return {
            name: self.describe(name, topic)
            for name, topic in sorted(topics.items())
            if name not in INTERNAL
        }

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions, ascending.

        Raises: UnknownTopicError. Cost: a GET if the topic is not in the known state.
        """
        topic_state = self.state.log.topics.get(topic) or self.news().log.topics.get(topic)
        if topic_state is not None:
            return sorted(topic_state.dirs)
        held = ", ".join(sorted(set(self.state.log.topics) - INTERNAL)) or "none"
        raise UnknownTopicError(f"topic {topic} is not in {self.home}; its topics: {held}")

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return a partition's topic id, if the partition exists.

        Cost: a GET if the partition is not in the known state.
        """
        for asks in (False, True):
            state = self.news() if asks else self.state
            topic_state = state.log.topics.get(topic)
            if topic_state is not None and partition in topic_state.dirs:
                return topic_state.id
        return None

    def bases(self, topic: str) -> Mapping[int, int]:
        """Return the first offsets of partitions that an earlier topic of this name also had."""
        topic_state = self.state.log.topics.get(topic)
        return {} if topic_state is None else topic_state.bases

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return {(topic, partition): (log start offset, end)} as of now. Cost: a GET.

        Raises: UnknownTopicError: the topic was deleted after the partition was looked up.
        """
        log = self.news().log
        by_partition = {}
        for key in keys:
            if key not in log.ends:
                raise unknown_partition(self, *key)
            start = log.starts.get(key, 0)
            by_partition[key] = start, max(start, log.ends.get(key, 0))
        return by_partition

    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Return no partitions: there is no disk that could be missing."""
        return {}

    # --- segments --------------------------------------------------------------------------------

    def of_partition(
        self,
        topic: str,
        partition: int,
        make: Callable[[PartitionSegments], T],
        topic_id: str | None = None,
    ) -> T:
        """Return `make`'s result for a partition's segments; see `sparklog.storage.view`."""
        key = TopicPartition(topic, partition)
        known = partition_state(self.state, key) or partition_state(self.news(), key)
        if known is None:
            raise unknown_partition(self, topic, partition)
        kept = self._kept.get(key)
        if (
            kept is None
            or kept.segments.topic_id != known.topic_id
            or topic_id not in (None, known.topic_id)
        ):
            kept = self._kept[key] = CachedPartition(self.segments(key, known))
        kept.segments.gaps = known.gaps
        return kept.cached(make)

    def segments(self, key: TopicPartition, known: PartitionState) -> DisklessSegments:
        """Return the segments of a partition. Each listing is as of its time."""
        log_id = self.state.log_id

        def look() -> PartitionState | None:
            now = partition_state(self.state, key)
            return now if now is not None and now.topic_id == known.topic_id else None

        def news() -> None:
            self.renew_if_replaced()
            self.news()

        where = self._where(*key, known.topic_id)
        return DisklessSegments(where, key, log_id, self.objects, look, news)

    def plan(self, key: TopicPartition, start: int, end: int) -> DisklessPlan | None:
        """Return the plan for a task that reads [start, end): the extents in this range.

        Returns None unless the known state contains the entire range.
        """
        state = self.state
        known = partition_state(state, key)
        if known is None or start >= end:
            return None
        first, last = index_of(known.extents, start), index_of(known.extents, end - 1)
        extents = known.extents[first : last + 1]
        if not extents or extents[0].base > start or extents[-1].end < end:
            return None  # e.g. the topic was deleted; the task reports the error when it reads
        names = {extent.object for extent in extents}
        keys = {name: state.keys[name] for name in names & state.keys.keys()}
        return DisklessPlan(
            log_id=state.log_id,
            key=key,
            topic_id=known.topic_id,
            span=(state.log.starts.get(key, 0), known.end),
            extents=extents,
            epochs=known.epochs,
            keys=keys,
            gaps=known.gaps,
            producers=known.producers,
        )
