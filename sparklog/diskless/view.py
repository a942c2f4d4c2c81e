"""A log in a store as readers see it: the state that its ledger folds to. No lock.

Whoever asks for offsets or topics gets those of the newest entry: one GET finds out that there is
none newer, so a read that begins after a commit returned sees it. Within `metadata_snapshot`
all answers are as of one request. All other questions are answered from memory.
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
"""Between two questions of who follows: each is a GET. Kafka's consumers wait up to 500."""
HOME_MS: Final = 30_000
"""So often it is looked whether the log is still the one in its place: a GET more."""
_LOGGER: Final = logging.getLogger(__name__)


class KnownState(Protocol):
    """What a process knows of a log, and how it finds out more: `ledger.Head`."""

    @property
    def state(self) -> DisklessState:
        """The state as of the newest entry that was folded: a picture that nobody changes."""

    def follow(self, retry: StoreRetry = ...) -> DisklessState:
        """Fold what is new, and return the state. Cost: one GET if there is nothing."""


class DisklessView:
    """See `sparklog.storage.view.View`. Nothing is asked before the first question.

    Args:
        url: where the log is, as its user named it.
        open_state: finds the log in its place; for a handle that writes, the commit log's own.
            Called again where another log is there by now.
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

    # --- what is known, and the news -------------------------------------------------------------

    @contextlib.contextmanager
    def metadata_snapshot(self) -> Iterator[None]:
        """Within it the first question asks the store, and all are answered as of then."""
        outer = getattr(self._look, "asked", None)
        if outer is None:
            self._look.asked = False
        try:
            yield
        finally:
            self._look.asked = outer

    @property
    def state(self) -> DisklessState:
        """What is known. Asks the store if nothing was yet."""
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
        """Fold what is new, and return the state.

        Raises: StorageUnavailableError, DataCorruptionError, UnsupportedVersionError: the ledger;
            InvalidRequestError: there is no log any more.
        """
        if getattr(self._look, "asked", None):
            return self.state
        if self._known is None:
            return self.state  # the newest, as it is opened just now
        if self._timer() - self._checked_ms >= HOME_MS:
            self.renew_if_replaced()
        state = self._opened().follow(self.objects.remote.retry)
        self._note_asked()
        return state

    def _note_asked(self) -> None:
        if getattr(self._look, "asked", None) is not None:
            self._look.asked = True

    def renew_if_replaced(self) -> None:
        """Begin anew if another log, or an earlier state of this one, is in the log's place.

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
            _LOGGER.info("%s is another log by now; looking at what is there", self._url)
            with self._opening:
                self._known, self._kept = None, {}
                self.objects.entries.clear()
                self.incarnation += 1

    def _found(self, names: Sequence[str]) -> list[bytes]:
        """Return small objects, b"" for one that is missing. Raises: StorageUnavailableError."""
        found = self.objects.store.get_many(names)
        for raw in found:
            if isinstance(raw, Exception) and not isinstance(raw, FileNotFoundError):
                raise raw
        return [raw if isinstance(raw, bytes) else b"" for raw in found]

    def renew(self) -> int:
        """Return the `incarnation`: whether the log was replaced is looked at with the news."""
        return self.incarnation

    def refresh(self) -> None:
        """Fold what is new."""
        self.news()

    def forget(self) -> None:
        """Do nothing: what this process changes, it knows."""

    def local_files(self, key: TopicPartition) -> None:
        """Return None: nothing lies in files of this host."""

    def set_following(self) -> None:
        """Wait for the store as long as a reader that goes on for ever does."""
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
        """Return a topic's partitions, ascending; asks if it isn't known. UnknownTopicError."""
        found = self.state.log.topics.get(topic) or self.news().log.topics.get(topic)
        if found is not None:
            return sorted(found.dirs)
        held = ", ".join(sorted(set(self.state.log.topics) - INTERNAL)) or "none"
        raise UnknownTopicError(f"topic {topic} is not in {self.home}; its topics: {held}")

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return a partition's topic id, by what is known; asks if it isn't. None: it is gone."""
        for asks in (False, True):
            state = self.news() if asks else self.state
            found = state.log.topics.get(topic)
            if found is not None and partition in found.dirs:
                return found.id
        return None

    def bases(self, topic: str) -> Mapping[int, int]:
        """Return where partitions begin that a former topic of this name had."""
        found = self.state.log.topics.get(topic)
        return {} if found is None else found.bases

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return {(topic, partition): (log start offset, end)} as of now. Cost: one GET.

        Raises: UnknownTopicError: the topic was deleted since the partition was looked up.
        """
        log = self.news().log
        found = {}
        for key in keys:
            if key not in log.ends:
                raise unknown_partition(self, *key)
            start = log.starts.get(key, 0)
            found[key] = start, max(start, log.ends.get(key, 0))
        return found

    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Return none: there is no disk that could be missing."""
        return {}

    # --- segments --------------------------------------------------------------------------------

    def of_partition(
        self,
        topic: str,
        partition: int,
        make: Callable[[PartitionSegments], T],
        topic_id: str | None = None,
    ) -> T:
        """Return what `make` gave for a partition's segments; see `sparklog.storage.view`."""
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
        """Return the segments of a partition, as of each listing."""
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
        """Return what a task reads [start, end) with: the extents that the range touches."""
        state = self.state
        found = partition_state(state, key)
        if found is None or start >= end:
            return None
        first, last = index_of(found.extents, start), index_of(found.extents, end - 1)
        extents = found.extents[first : last + 1]
        if not extents or extents[0].base > start or extents[-1].end < end:
            return None  # something happened to it meanwhile; the task will see what
        names = {extent.object for extent in extents}
        keys = {name: state.keys[name] for name in names & state.keys.keys()}
        return DisklessPlan(
            log_id=state.log_id,
            key=key,
            topic_id=found.topic_id,
            span=(state.log.starts.get(key, 0), found.end),
            extents=extents,
            epochs=found.epochs,
            keys=keys,
            gaps=found.gaps,
            producers=found.producers,
        )
