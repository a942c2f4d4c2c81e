"""Readers' view of a log in a bucket: the state that results from folding its ledger. No lock.

Offsets and topics are always current: a GET checks for new entries, so a read that starts after a
commit returned sees that commit. Within `metadata_snapshot` all answers describe the same moment,
with a single check. All other answers come from the known state.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.extents import index_of
from sparklog.diskless.names import HOME, entry_name
from sparklog.diskless.plan import DisklessPlan
from sparklog.diskless.process_lock import ProcessLock
from sparklog.diskless.segments import DisklessSegments, PartitionState, partition_state
from sparklog.diskless.state import DisklessState
from sparklog.log.listed_view import ListedView
from sparklog.storage.segments import PartitionSegments
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import Offsets, TopicInfo, unknown_partition
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.reading.store_retry import StoreRetry

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


class DisklessView(ListedView[TopicState]):
    """A reader's view of a log in a bucket: implements `sparklog.storage.view.View`.

    The view makes no request before the first method call that needs the log's state. The method
    `news` checks whether the log was replaced. The state contains the changes of this process, so
    `forget` has no effect.

    Args:
        url: The log's URL as the user gave it.
        open_state: Opens the log at the URL; for a handle that writes, the head of its commit log.
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
        super().__init__(url.rstrip("/"))
        self.objects, self._open_state, self._timer = objects, open_state, timer
        self.poll_ms = float(POLL_MS)
        self._known: KnownState | None = None
        self._opening = ProcessLock()
        self._checked_ms = 0.0
        self._look = threading.local()

    # --- the known state, and new entries --------------------------------------------------------

    @contextlib.contextmanager
    def metadata_snapshot(self) -> Iterator[None]:
        """Answer all requests in this context as of the first, which looks for new entries."""
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
        """Apply the new entries of the ledger and return the state.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            DataCorruptionError: An entry is damaged.
            UnsupportedVersionError: A newer sparklog wrote an entry.
            InvalidRequestError: The log does not exist any more.
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
        # strict=False: for a log without entries only the home object was requested.
        if not all(each in raw for each, raw in zip(ids, raws, strict=False)):
            _LOGGER.info("another log is stored at %s now; opening it", self.home)
            with self._opening:
                self._known, self._cached = None, {}
                self.objects.entries.clear()
                self.incarnation += 1

    def _found(self, names: Sequence[str]) -> list[bytes]:
        """Return the contents of small objects, b"" for a missing object.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        raws = self.objects.store.get_many(names)
        for raw in raws:
            if isinstance(raw, Exception) and not isinstance(raw, FileNotFoundError):
                raise raw
        return [raw if isinstance(raw, bytes) else b"" for raw in raws]

    def refresh(self) -> None:
        """Fold new entries."""
        self.news()

    def set_following(self) -> None:
        """Wait for an unavailable store as long as a reader of new records does."""
        self.objects.remote.retry.set_following()

    # --- topics and offsets ----------------------------------------------------------------------

    def describe(self, name: str, topic: TopicState) -> TopicInfo:
        """Return the user's view of a topic."""
        dirs = {p: self._where(name, p, topic.id) for p in sorted(topic.dirs)}
        return TopicInfo(name, topic.id, max(dirs) + 1, topic.parsed(), dirs)

    def _where(self, topic: str, partition: int, topic_id: str) -> str:
        return f"{self.home}/{Directory(topic, partition, topic_id).prefix[:-1]}"

    def _described(self) -> dict[str, TopicInfo]:
        topics = self.state.log.topics
        return {name: self.describe(name, topic) for name, topic in topics.items()}

    def _topic_names(self) -> Collection[str]:
        return self.state.log.topics.keys()

    def _state(self, topic: str) -> TopicState | None:
        return self.state.log.topics.get(topic)

    def _numbers(self, topic: str) -> Collection[int]:
        state = self._state(topic)
        return () if state is None else state.dirs.keys()

    def _find(self, key: TopicPartition) -> TopicState | None:
        state = self.state.log.topics.get(key.topic)
        return state if state is not None and key.partition in state.dirs else None

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return a partition's topic id, if the partition exists.

        Cost: a GET if the partition is not in the known state.
        """
        state = self._look_up(TopicPartition(topic, partition))
        return None if state is None else state.id

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return {(topic, partition): (log start offset, end)} as of now.

        Cost: a GET.

        Raises:
            UnknownTopicError: The topic was deleted after the partition was looked up.
        """
        log = self.news().log
        by_partition = {}
        for key in keys:
            if key not in log.ends:
                raise unknown_partition(self, *key)
            start = log.starts.get(key, 0)
            by_partition[key] = start, max(start, log.ends.get(key, 0))
        return by_partition

    # --- segments --------------------------------------------------------------------------------

    def _update(self, key: TopicPartition, segments: PartitionSegments, place: TopicState) -> bool:
        if segments.topic_id != place.id:
            return False
        segments.gaps = key in self.state.gaps
        return True

    def _open(self, key: TopicPartition, place: TopicState) -> DisklessSegments:
        """Return the segments of a partition. Each listing of them uses the state at that time."""

        def look() -> PartitionState | None:
            now = partition_state(self.state, key)
            return now if now is not None and now.topic_id == place.id else None

        def news() -> None:
            self.renew_if_replaced()
            self.news()

        where = self._where(*key, place.id)
        return DisklessSegments(where, key, self.state.log_id, self.objects, look, news)

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
