"""Topics, log start offsets and high watermarks in memory, for frequent client requests.

A thread follows the log at the view's poll interval while clients request partitions, so requests
and waiting clients cause no store or disk access of their own. Commits of this endpoint are known
immediately.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import SparklogError, UnknownTopicError
from sparklog.kafka.messages import uuid_of
from sparklog.storage.view import Offsets, TopicInfo, View

KEPT_MS: Final = 10_000
"""How long a partition is followed after the last request for its span."""
TOPICS_MS: Final = 1_000
"""Maximum age of the topic list, unless the caller requires a newer one."""
IDLE_POLL_MS: Final = 100
"""Poll interval after IDLE_AFTER_MS without changes; costs 0.25% of a core.

Commits of this endpoint are known immediately all the same.
"""
IDLE_AFTER_MS: Final = 2_000
_FAILING_MS: Final = 1_000
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Watch:
    """A subscription to changes of partitions; ends with `close`."""

    __slots__ = ("_partitions", "keys", "wake")

    def __init__(
        self, partitions: "Partitions", keys: Sequence[TopicPartition], wake: Callable[[], None]
    ) -> None:
        self._partitions, self.keys, self.wake = partitions, keys, wake

    def close(self) -> None:
        """Stop watching. Idempotent."""
        self._partitions._unwatch(self)


class Partitions:
    """State of the log's partitions. All methods except `close` run on the event loop's thread."""

    def __init__(
        self, view: View, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor
    ) -> None:
        self._view, self._loop, self._pool = view, loop, pool
        self._spans: dict[TopicPartition, Offsets] = {}
        self._asked_ms: dict[TopicPartition, float] = {}
        self._watches: dict[TopicPartition, set[Watch]] = {}
        self._topics: Mapping[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}
        self._topics_ms = self._forgotten_ms = self._tried_ms = float("-inf")
        self._listing: asyncio.Future[None] | None = None
        self._listing_ms = 0.0  # duration of the last listing
        self._due = threading.Event()
        self._followed: frozenset[TopicPartition] = frozenset()
        # The number of commits of this endpoint. If it changes during a poll, the poll may be older
        # than a commit, and only its higher values are applied.
        self._commits = 0
        self._looked_ms = float("-inf")
        self._says_all = False  # the next poll reports all partitions, not only changes
        self._closed = False
        self._thread: threading.Thread | None = None

    # --- topics ------------------------------------------------------------------------------

    async def topics(self, max_age_ms: float = TOPICS_MS) -> Mapping[str, TopicInfo]:
        """Return the topics, listed at most `max_age_ms` ago; 0 requires a listing that starts now.

        Raises:
            StorageUnavailableError: The topics can't be listed.
            DataCorruptionError: The list of topics is damaged.
        """
        asked_ms = monotonic_ms()
        while self._topics_ms < max(asked_ms - max_age_ms, self._forgotten_ms):
            # Shielded: all waiting clients share the listing, and one that disconnects must not
            # cancel it.
            await asyncio.shield(self._begin_listing())
        return self._topics

    @property
    def news_ms(self) -> float:
        """Maximum age of the topic list for callers that expect new topics; for `topics`.

        This is the view's poll interval, and longer for thousands of topics, because a listing may
        use a tenth of the time.
        """
        return min(TOPICS_MS, max(self._view.poll_ms, 10 * self._listing_ms))

    def _look_for_topics(self) -> None:
        """List the topics while clients wait: a topic may be deleted or created again."""
        if self._watches and self._tried_ms < monotonic_ms() - TOPICS_MS:
            self._begin_listing()

    def _begin_listing(self) -> "asyncio.Future[None]":
        # A completed listing may still be here; awaiting it repeatedly would never end.
        if self._listing is None or self._listing.done():
            self._tried_ms = monotonic_ms()
            self._listing = asyncio.ensure_future(self._list())
            self._listing.add_done_callback(self._listed)
        return self._listing

    async def _list(self) -> None:
        began_ms = monotonic_ms()
        topics = await self._loop.run_in_executor(self._pool, self._view.topics)
        self._listing_ms = monotonic_ms() - began_ms
        before, self._topics, self._topics_ms = self._topics, topics, began_ms
        self._names = {uuid_of(info.id): name for name, info in topics.items() if info.id}
        self._wake(key for key in self._watches if _place(key, before) != _place(key, topics))

    def _listed(self, listing: "asyncio.Future[None]") -> None:
        if self._listing is listing:
            self._listing = None
        if not listing.cancelled():
            listing.exception()  # waiting callers raise it; there may be none

    async def topic_names(self, ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return {topic id: name} of the existing topics among `ids`."""
        wanted = list(ids)
        await self.topics()
        if not all(each in self._names for each in wanted):
            await self.topics(max_age_ms=self._view.poll_ms)
        return {each: self._names[each] for each in wanted if each in self._names}

    def forget_topics(self) -> None:
        """Require a new listing for the next request, because this endpoint changed topics."""
        self._forgotten_ms = monotonic_ms()  # a listing in progress is older and does not count

    # --- spans -------------------------------------------------------------------------------

    def known_span(self, key: TopicPartition) -> Offsets | None:
        """Return (log start offset, high watermark) of a followed partition, or None; no lookup."""
        return self._spans.get(key)

    async def spans(
        self, keys: Sequence[TopicPartition], max_age_ms: float | None = None
    ) -> dict[TopicPartition, Offsets]:
        """Return {partition: (log start offset, high watermark)}, at most `max_age_ms` old.

        `max_age_ms` None accepts the followed state, which is at most IDLE_POLL_MS old. Missing
        partitions are left out.

        Raises:
            StorageUnavailableError: The log can't be read.
            DataCorruptionError: A partition is damaged.
        """
        now_ms = monotonic_ms()
        is_old = max_age_ms is not None and self._looked_ms < now_ms - max_age_ms
        asked = [key for key in keys if is_old or key not in self._spans]
        for key in keys:
            self._asked_ms[key] = now_ms
        if asked:
            commits = self._commits
            found = await self._loop.run_in_executor(self._pool, _spans, self._view, asked)
            if is_old and commits == self._commits:
                self.update(found, ())
            self._spans = found | self._spans  # values that arrived in the meantime are newer
            self._follow(asked)
        return {key: self._spans[key] for key in keys if key in self._spans}

    def watch(self, keys: Sequence[TopicPartition], wake: Callable[[], None]) -> Watch:
        """Call `wake` whenever any of `keys` changes or disappears, until the watch is closed."""
        found = Watch(self, keys, wake)
        for key in keys:
            self._watches.setdefault(key, set()).add(found)
        self._follow(keys)
        return found

    def _unwatch(self, watch: Watch) -> None:
        now_ms = monotonic_ms()
        for key in watch.keys:
            held = self._watches.get(key)
            if held is not None:
                held.discard(watch)
                self._asked_ms[key] = now_ms
                if not held:
                    del self._watches[key]

    def advanced(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record the end offsets after a commit of this endpoint."""
        self._commits += 1
        known = {k: (self._spans[k][0], end) for k, end in ends.items() if k in self._spans}
        self.update({k: span for k, span in known.items() if span[1] > self._spans[k][1]}, ())

    def changed(self) -> None:
        """Poll now, because this endpoint changed something."""
        self.forget_topics()
        self._due.set()

    async def refresh(self) -> None:
        """Reload all followed partitions after this endpoint changed topics or log starts.

        Clients that wait for a partition that was deleted or has a higher log start are woken. If
        the log cannot be read, the thread retries.
        """
        self._commits += 1  # a poll in progress is older
        self.changed()
        followed, commits = tuple(self._followed), self._commits
        with contextlib.suppress(SparklogError, OSError):
            spans = await self._loop.run_in_executor(self._pool, _spans, self._view, followed)
            self._looked(spans, [key for key in followed if key not in spans], commits)

    # --- polling ---------------------------------------------------------------------------------

    def _follow(self, keys: Iterable[TopicPartition]) -> None:
        """Add partitions for the thread to follow; start the thread if necessary."""
        if self._followed.issuperset(keys):
            return
        self._followed = frozenset({**self._watches, **self._asked_ms})
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(
                target=self._poll, name="sparklog-kafka-watermarks", daemon=True
            )
            self._thread.start()
        self._due.set()

    def _poll(self) -> None:
        """Thread function: poll, pass changes to the event loop, wait."""
        seen: dict[TopicPartition, Offsets] = {}
        news_ms = monotonic_ms()
        while not self._closed:
            followed, commits = tuple(self._followed), self._commits
            if self._says_all:
                self._says_all, seen = False, {}
            wait_ms = self._view.poll_ms if followed else None
            began_ms = monotonic_ms()
            try:
                spans = _spans(self._view, followed) if followed else {}
            except Exception as error:  # noqa: BLE001 - the thread retries
                _LOGGER.warning("%s: polling the log failed: %s", self._view.home, error)
                spans, wait_ms = seen, _FAILING_MS
            new = {key: span for key, span in spans.items() if seen.get(key) != span}
            gone = [key for key in followed if key not in spans]
            if (new or gone) and not self._closed:
                self._loop.call_soon_threadsafe(self._looked, new, gone, commits)
            if not self._closed and self._tried_ms < monotonic_ms() - TOPICS_MS:
                self._loop.call_soon_threadsafe(self._look_for_topics)
            seen, self._looked_ms = spans, began_ms
            if new or gone:
                news_ms = monotonic_ms()
            elif wait_ms is not None and news_ms < monotonic_ms() - IDLE_AFTER_MS:
                wait_ms = max(wait_ms, IDLE_POLL_MS)
            self._due.wait(None if wait_ms is None else wait_ms / 1000)
            self._due.clear()

    def _looked(
        self, new: Mapping[TopicPartition, Offsets], gone: Iterable[TopicPartition], commits: int
    ) -> None:
        """Apply the result of a poll that began after `commits` commits of this endpoint.

        If a commit happened during the poll, the result may be older than the known state. Then
        only higher values are applied, and the next poll reports everything. Polling again at once
        would never end with steady producers.
        """
        if commits == self._commits:
            self.update(new, gone)
            return
        self._says_all = True
        self.update({key: span for key, span in new.items() if self._is_more(key, span)}, ())

    def _is_more(self, key: TopicPartition, span: Offsets) -> bool:
        known = self._spans.get(key)
        return known is not None and span[0] >= known[0] and span[1] >= known[1]

    def update(self, new: Mapping[TopicPartition, Offsets], gone: Iterable[TopicPartition]) -> None:
        """Store new spans, delete the spans of missing partitions, and wake their watches."""
        changed = [key for key, span in new.items() if self._spans.get(key) != span]
        self._spans.update(new)
        changed += [key for key in gone if self._spans.pop(key, None) is not None]
        self._drop_idle()
        self._wake(changed)

    def _wake(self, keys: Iterable[TopicPartition]) -> None:
        watches: set[Watch] = set()
        for key in keys:
            watches |= self._watches.get(key, set())
        for watch in watches:
            watch.wake()

    def _drop_idle(self) -> None:
        """Stop following partitions that were not requested for a while."""
        before_ms = monotonic_ms() - KEPT_MS
        idle = [k for k, at in self._asked_ms.items() if at < before_ms and k not in self._watches]
        for key in idle:
            del self._asked_ms[key]
            self._spans.pop(key, None)
        if idle:
            self._followed = frozenset({**self._watches, **self._asked_ms})

    def close(self) -> None:
        """Stop the thread. Idempotent; callable from any thread."""
        self._closed = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()


def known_partition(topics: Mapping[str, TopicInfo], key: TopicPartition) -> bool:
    """Return True if a partition is in `topics`."""
    info = topics.get(key.topic)
    return info is not None and key.partition in info.dirs


def _place(key: TopicPartition, topics: Mapping[str, TopicInfo]) -> tuple[str, bool] | None:
    """Return the topic id of a partition and whether the partition is offline, None if unknown."""
    if not known_partition(topics, key):
        return None
    info = topics[key.topic]
    return info.id, key.partition in info.offline


def _spans(view: View, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
    try:
        return view.spans(keys)
    except UnknownTopicError:
        pass  # one missing topic fails the call for all, so ask for each partition
    found: dict[TopicPartition, Offsets] = {}
    for key in keys:
        try:
            found |= view.spans([key])
        except UnknownTopicError:
            continue
    return found
