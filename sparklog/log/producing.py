"""Commit the batches of many Kafka producers together; each batch is checked separately.

A commit costs the same for any number of batches (1 to 3 fsyncs, or a PUT), so batches that arrive
during a commit wait for the next commit. A rejected batch does not affect the others. A batch that
was appended before (a retry of an idempotent producer) returns its old offsets. Source of the
results: UnifiedLog.append, ProducerAppendInfo (Kafka 4.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
)
from sparklog.format.scan import rebase
from sparklog.log.client_batches import ClientBatch
from sparklog.log.commit import check_known, record_of
from sparklog.log.topic_names import refuse_brokers_own
from sparklog.storage.commits import Change, Chunk, CommitLog, DuplicateAppend, change
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.log_state import LogState

_NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class Produced:
    """The outcome of a producer's batch that is in the log, at offsets [first, end).

    Attributes:
        append_time_ms: The timestamp of the records if the topic uses LogAppendTime, else -1.
        log_start: The log start offset of the partition.
        is_replay: Whether the batch had been appended before.
    """

    first: int
    end: int
    append_time_ms: int
    log_start: int
    is_replay: bool = False


Outcome: TypeAlias = Produced | SparklogError


def produce(
    commits: CommitLog, batches: Sequence[ClientBatch | Chunk], *, app: str = ""
) -> list[Outcome]:
    """Commit producers' batches and return the outcome of each batch, in the same order.

    Args:
        batches: Producers' batches, or checked chunks in memory with a single batch each. Batches
            of a partition are appended in this order. They are validated by their topics' config at
            commit time.
        app: The application that produces, for the ledger.

    Returns:
        For each batch its offsets, or an error: FencedError or OutOfOrderSequenceError of its
            producer; UnknownTopicError; TopicReplacedError; RefusedBatchError or
            RecordTooLargeError for an invalid batch; DataCorruptionError if its partition is
            offline; StorageUnavailableError if no batch was written; CommitUnknownError if the
            outcome is unknown, which an idempotent producer resolves by a retry.

    Raises LogReplacedError or LogLockedError if no batch was committed. Cost: a commit, if any
    batch is to be written.
    """
    outcomes: dict[int, Outcome] = {}
    _commit(commits, [*enumerate(batches)], outcomes, app)
    return [outcomes[number] for number in range(len(batches))]


Numbered: TypeAlias = tuple[int, Chunk]
Given: TypeAlias = tuple[int, ClientBatch | Chunk]
T = TypeVar("T", bound=ClientBatch | Chunk)


def _commit(
    commits: CommitLog, batches: Sequence[Given], outcomes: dict[int, Outcome], app: str
) -> None:
    """Commit the batches together; if a partition prevents that, commit each partition alone.

    The outcomes are added to `outcomes`.
    """
    try:
        with commits.meters.committing():
            _Attempt(commits, batches, app).run(outcomes)
    except (InvalidRequestError, DataCorruptionError) as error:
        # A single partition is the cause: its files are damaged, or its config was changed.
        parts = _by_partition(batches)
        if len(parts) == 1:
            outcomes |= {number: error for number, _ in batches}
            return
        for part in parts:
            _commit(commits, part, outcomes, app)
    except StorageUnavailableError as error:
        outcomes |= {number: error for number, _ in batches}


def _by_partition(batches: Sequence[tuple[int, T]]) -> list[list[tuple[int, T]]]:
    parts: dict[TopicPartition, list[tuple[int, T]]] = {}
    for number, batch in batches:
        parts.setdefault(batch.key, []).append((number, batch))
    return list(parts.values())


class _Attempt:
    """An attempt to commit some batches together.

    `_decide` may run several times, because other processes may change the log meanwhile.
    """

    def __init__(self, commits: CommitLog, batches: Sequence[Given], app: str) -> None:
        self._commits, self._batches, self._app = commits, batches, app
        self._asked_ms, self._asked_at = commits.clock(), commits.position
        self._outcomes: dict[int, Outcome] = {}
        self._good: list[Numbered] = []
        self._joined: tuple[Chunk, ...] = ()

    def run(self, outcomes: dict[int, Outcome]) -> None:
        """Commit the batches and add their outcomes to `outcomes`."""
        began_ms, commits = monotonic_ms(), self._commits
        written = change(commits, self._decide)
        if written is not None:
            assert isinstance(written, AppendRecord)
            commits.release_staged(self._joined)
            commits.meters.committed(began_ms, (chunk.size_bytes for chunk in self._joined))
            self._note_stamps(written)
        # No record was written, so each batch with offsets is a duplicate.
        elif any(isinstance(found, Produced) for found in self._outcomes.values()):
            commits.meters.replayed()
        outcomes |= self._outcomes

    def _decide(self, state: LogState) -> Change | None:
        """Check all batches; return the change to write, or None if no batch is to be appended.

        The outcome of each batch is stored.
        """
        commits = self._commits
        if commits.sync:
            commits.make_durable()  # "appended already" must mean durable
        self._outcomes = {}
        found = self._with_room(self._known(state))
        judged = commits.check_producers([chunk for _, chunk in found])
        ends: dict[TopicPartition, int] = {}
        good = []
        for (number, chunk), verdict in zip(found, judged, strict=True):
            if isinstance(verdict, SparklogError):
                self._outcomes[number] = verdict
                continue
            if verdict is None:
                # Batches of the same partition follow each other in this commit.
                first = ends.get(chunk.key, state.ends[chunk.key])
                ends[chunk.key] = first + chunk.records
                good.append((number, chunk))
                verdict = DuplicateAppend(first, first + chunk.records, _NO_TIMESTAMP)
                self._outcomes[number] = _produced(state, chunk, verdict, is_replay=False)
            else:
                self._outcomes[number] = _produced(state, chunk, verdict, is_replay=True)
        if not good:
            return None
        if good != self._good:  # a repeated decision stages the same chunks only once
            self._good, self._joined = good, joined([chunk for _, chunk in good])
        return Change(
            record=record_of(state, self._joined, app=self._app), chunks=self._joined,
            asked_ms=self._asked_ms, asked_at=self._asked_at,
        )  # fmt: skip

    def _known(self, state: LogState) -> list[Numbered]:
        """Return the valid batches, as (index, chunk), for a log in this state.

        Each other batch gets an error as its outcome.
        """
        accepted = []
        for number, batch in self._batches:
            try:
                refuse_brokers_own(batch.key.topic)
                check_known(self._commits, batch.key)
                _check_topic(state, batch, self._commits.home)
                if isinstance(batch, ClientBatch):
                    config = state.topics[batch.key.topic].parsed()
                    accepted.append((number, batch.chunk(config, self._asked_ms)))
                else:
                    accepted.append((number, batch))
            except SparklogError as error:
                self._outcomes[number] = error
        return accepted

    def _with_room(self, batches: list[Numbered]) -> list[Numbered]:
        """Return the batches of partitions that are online and have disk space.

        Each other batch gets an error as its outcome. If the batches fit only partition by
        partition, but not together, all of them get an error.
        """
        commits = self._commits
        try:
            commits.check([chunk for _, chunk in batches])
            return batches
        except SparklogError as error:
            error_of_all = error
        accepted = []
        for part in _by_partition(batches):
            try:
                commits.check([chunk for _, chunk in part])
                accepted += part
            except SparklogError as error:
                self._outcomes |= {number: error for number, _ in part}
        if len(accepted) == len(batches):  # each partition fits, but not all: clients retry fewer
            self._outcomes |= {number: error_of_all for number, _ in accepted}
            return []
        return sorted(accepted, key=lambda each: each[0])

    def _note_stamps(self, written: AppendRecord) -> None:
        """Set the append time in the outcomes of topics that use LogAppendTime."""
        if not written.stamped:
            return
        topics = self._commits.state.topics
        for number, chunk in self._good:
            topic, outcome = topics.get(chunk.topic), self._outcomes[number]
            if topic is not None and topic.parsed().log_append_time:
                assert isinstance(outcome, Produced)
                self._outcomes[number] = replace(outcome, append_time_ms=written.time_ms)


def _produced(
    state: LogState, chunk: Chunk, where: DuplicateAppend, *, is_replay: bool
) -> Produced:
    is_stamped = is_replay and state.topics[chunk.topic].parsed().log_append_time
    stamp_ms = where.timestamp if is_stamped else _NO_TIMESTAMP
    start = state.starts.get(chunk.key, 0)
    return Produced(where.first, where.end, stamp_ms, start, is_replay)


def _check_topic(state: LogState, batch: ClientBatch | Chunk, home: str) -> None:
    if batch.topic_id not in ("", state.topics[batch.key.topic].id):
        raise TopicReplacedError(
            f"topic {batch.key.topic} of {home} was deleted and created again since this batch "
            "was sent; the batch was not committed"
        )


def joined(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Return one chunk per partition: the partition's chunks, joined in order, in memory."""
    by_partition: dict[TopicPartition, list[Chunk]] = {}
    for chunk in chunks:
        by_partition.setdefault(chunk.key, []).append(chunk)
    return tuple(
        parts[0] if len(parts) == 1 else _concatenated(parts) for parts in by_partition.values()
    )


def _concatenated(chunks: Sequence[Chunk]) -> Chunk:
    whole = bytearray().join(chunk.data or b"" for chunk in chunks)
    view, at, base = memoryview(whole), 0, 0
    for chunk in chunks:
        rebase(view[at : at + chunk.size_bytes], base, 0)
        at, base = at + chunk.size_bytes, base + chunk.records
    return replace(
        chunks[0],
        data=view,
        size_bytes=len(whole),
        records=base,
        min_timestamp=min(chunk.min_timestamp for chunk in chunks),
        max_timestamp=max(chunk.max_timestamp for chunk in chunks),
        idempotent=any(chunk.idempotent for chunk in chunks),
    )
