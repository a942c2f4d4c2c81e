"""Commits the batches that producers send, in a single thread.

A commit ends with an fsync or a PUT, whatever its size. Batches that arrive in the meantime form
the next commit, so a single producer waits for its own commit, and many producers share a commit.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.log.client_batches import ClientBatch
from sparklog.log.producing import Outcome, Produced, produce
from sparklog.storage.commits import CommitLog

COMMIT_BYTES: Final = 32 << 20
"""A commit takes no more requests once it has this many bytes. It always takes at least one."""
COMMIT_BATCHES: Final = 4096
"""A commit takes no more requests once it has this many batches, each about 150 ledger bytes."""
APP: Final = "kafka"
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Work:
    """The batches of a Produce request.

    `answer` is done when their outcome is known or given up.
    """

    __slots__ = ("_respond", "answer", "batches", "given_up", "size_bytes")

    def __init__(
        self,
        batches: Sequence[ClientBatch],
        answer: "asyncio.Future[Any]",
        respond: Callable[[Sequence[Outcome]], Any],
    ) -> None:
        self.batches, self.answer, self._respond = batches, answer, respond
        self.size_bytes = sum(batch.size_bytes for batch in batches)
        self.given_up = False

    def done(self, outcomes: Sequence[Outcome]) -> None:
        """Answer the request, unless `give_up` was faster. Called on the event loop's thread."""
        if not self.answer.done():
            self.answer.set_result(self._respond(outcomes))

    def give_up(self, error: SparklogError) -> None:
        """Answer the request with an error now.

        Its batches are dropped if no commit includes them yet.
        """
        if not self.answer.done():
            self.given_up = True
            self.done([error] * len(self.batches))


class Committer:
    """Queues the batches of Produce requests, and commits them in a thread of its own.

    Args:
        commits: The commit log.
        loop: The endpoint's event loop, on which requests are answered.
        clock: The clock.
        advanced: Called after each commit, on the event loop's thread, with the new end offset of
            each partition.
    """

    def __init__(
        self,
        commits: CommitLog,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        advanced: Callable[[Mapping[TopicPartition, int]], None],
    ) -> None:
        self._commits, self._loop, self._clock, self._advanced = commits, loop, clock, advanced
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, work: Work) -> None:
        """Queue a request for commit. Called on the event loop's thread."""
        if self._is_closed:
            error = StorageUnavailableError("the endpoint is stopping; try again", passing=True)
            work.give_up(error)
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="sparklog-kafka-committer", daemon=True
            )
            self._thread.start()
        self._waiting.put(work)

    def close(self) -> None:
        """Stop after all queued requests were committed. Not on the loop's thread. Idempotent."""
        self._is_closed = True
        if self._thread is not None:
            # Behind the queued requests: clients that wait for a commit still get their answer.
            self._waiting.put(None)
            self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            works, ended = self._take()
            if works:
                outcomes = self._commit(works)
                try:
                    self._loop.call_soon_threadsafe(self._publish, works, outcomes)
                except RuntimeError:  # the loop is closed, so no client waits for the result
                    _LOGGER.debug("the event loop is closed; no client waits for this commit")

    def _take(self) -> tuple[list[Work], bool]:
        """Wait for requests; return the queued requests, and whether the queue was closed."""
        works: list[Work] = []
        size = count = 0
        work = self._waiting.get()
        while work is not None:
            if not work.given_up:
                works.append(work)
                size, count = size + work.size_bytes, count + len(work.batches)
            if size >= COMMIT_BYTES or count >= COMMIT_BATCHES:
                return works, False
            try:
                work = self._waiting.get_nowait()
            except Empty:
                return works, False
        return works, True

    def _commit(self, works: Iterable[Work]) -> list[Outcome]:
        batches = [batch for work in works for batch in work.batches]
        try:
            self._validate(batches)
            return produce(self._commits, batches, app=APP)
        except SparklogError as error:
            return [error] * len(batches)
        except Exception as error:
            # The thread must survive: without it no request of any client would be answered.
            _LOGGER.exception("the commit of produced batches failed")
            failed = StorageUnavailableError(f"the commit failed in the endpoint: {error!r}")
            return [failed] * len(batches)

    def _validate(self, batches: Iterable[ClientBatch]) -> None:
        """Validate batches against their topics' configs before the log is locked."""
        topics, now_ms = self._commits.state.topics, self._clock()
        for batch in batches:
            topic = topics.get(batch.key.topic)
            if topic is not None:
                batch.look(topic.parsed(), now_ms)

    def _publish(self, works: Iterable[Work], outcomes: Sequence[Outcome]) -> None:
        ends: dict[TopicPartition, int] = {}
        at = 0
        for work in works:
            own = outcomes[at : at + len(work.batches)]
            at += len(own)
            for batch, outcome in zip(work.batches, own, strict=True):
                if isinstance(outcome, Produced):
                    ends[batch.key] = max(outcome.end, ends.get(batch.key, 0))
            work.done(own)
        self._advanced(ends)
