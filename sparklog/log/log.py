"""`Log`: the public face of a log, for plain Python."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import CommitUnknownError, DataCorruptionError
from sparklog.log import admin
from sparklog.log.appending import Data, append, known_topic
from sparklog.log.commit import CommitResult, Ends, Identity, commit, committed, outcome
from sparklog.log.commits_table import commits_table
from sparklog.log.fetch import check_isolation, read
from sparklog.log.group_lag import commit_checked, readers_table
from sparklog.log.group_progress import Progress
from sparklog.log.partition_reader import reader_of
from sparklog.log.positions import Position, When, offsets_for_times, to_ms
from sparklog.log.timeline import Timeline, check_timeline
from sparklog.log.truncation_detection import LogTruncationDetector
from sparklog.storage.commits import Chunk
from sparklog.storage.home import GivenUp, Home
from sparklog.storage.leader_epochs import end_offset_for
from sparklog.storage.lease import Lease
from sparklog.storage.staging import Framing, Stager
from sparklog.storage.view import TopicInfo, View


class Log:
    """A log, opened by `sparklog.open`; a context manager.

    In mode "r" no lock is taken and nothing on disk changes, but for the offsets of a group that
    the caller names. In mode "rw" brokers are kept out until the last process has closed the log;
    any number of processes and threads may write at the same time, their commits take turns.
    Reading methods see what is committed, whoever committed it.
    """

    def __init__(self, home: Home, *, options: LogOptions, clock: Clock) -> None:
        """Use `sparklog.open`. `home`: where the log is kept, opened; `close` closes it."""
        self.home = home
        self.path = home.path
        self._options, self._clock = options, clock

    # --- topics ------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicInfo]:
        """Return {name: TopicInfo} of all topics, without internal ones."""
        return self.view.topics()

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises UnknownTopicError."""
        topics = self.topics()
        if name not in topics:
            self.view.partitions(name)  # raises for a topic that isn't there
            raise admin.unknown(name, self.path, topics)
        return topics[name]

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        if_not_exists: bool = False,
        starts: Mapping[int, int] | None = None,
    ) -> TopicInfo:
        """Make a topic; a new partition goes to the log dir that has fewest.

        `config` takes Kafka's topic keys ("retention.ms", ...); what it leaves out has the
        defaults of the log's options, then Kafka's. A topic that was deleted and is made again
        goes on at its old end, so that no offset ever names two records. `starts`: {partition:
        offset} where they begin, of a topic whose records come from elsewhere and keep their
        offsets (sparklog.tools.moving.placing): some may be missing.

        Raises: InvalidRequestError for a name that is reserved, taken or collides, or a bad config.
        """
        admin.create_topic(self.home.commits, name, partitions, config or {}, if_not_exists, starts)
        return self._committed_topic(name)

    def alter_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, object | None] | None = None,
    ) -> TopicInfo:
        """Change configs (None resets one) or add partitions (their number can't fall)."""
        admin.alter_topic(self.home.commits, name, partitions, config or {})
        return self._committed_topic(name)

    def delete_topic(self, name: str, *, topic_id: str | None = None) -> None:
        """Delete a topic and its files. Readers at work get an error that says so.

        `topic_id`: delete it only if it has this id: no other topic that has its name by now.
        Raises UnknownTopicError.
        """
        admin.delete_topic(self.home.commits, name, topic_id)
        self.view.forget()

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Raise log start offsets: records before {partition: offset} are gone for readers.

        -1 means the high watermark. Files go with retention. Returns the log starts that hold now.
        Raises OffsetOutOfRangeError for an offset past the high watermark. Source: KIP-107.
        """
        return admin.delete_records(self.home.commits, topic, offsets)

    # --- writing -----------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        data: Data,
        partition: int | None = None,
        producer: tuple[int, int, int] | None = None,
        *,
        framing: Framing | None = None,
    ) -> Ends:
        """Append records and return {topic: {partition: (first offset, end offset)}}.

        Args:
            data: columns value (binary or string, null is a tombstone) and, if wanted, key,
                headers (list<struct<key: string, value: binary>>), timestamp, partition. A table
                or batch is one atomic commit; a reader is committed every 64 MiB.
            partition: for all rows; else the column, else murmur2 of the key as Kafka's default
                partitioner (or where the column is null), else sticky: one each batch.size bytes.
            producer: (producer id, epoch, sequence of the first row) of an idempotent producer,
                with `partition`: an append that was made before returns its old offsets.
        Raises: InvalidRequestError, UnknownTopicError, RecordTooLargeError before anything is
            written; FencedError, OutOfOrderSequenceError; StorageUnavailableError.
        Cost: fsync of each touched partition, of the ledger and of the watermark file.
        """
        admin.refuse_internal(topic)
        info = known_topic(self.home, topic, self.topic)
        return append(
            self.home.commits, self.home.stager, info, data,
            partition=partition, producer=producer, framing=framing or Framing(),
        )  # fmt: skip

    def commit(
        self,
        chunks: Sequence[Chunk],
        *,
        identity: Identity | None = None,
        app: str = "",
        source: Mapping[str, Any] | None = None,
        at: Mapping[tuple[str, int], int] | None = None,
    ) -> CommitResult:
        """Commit staged chunks at once; see `sparklog.log.commit.commit`. The sink's entry."""
        return commit(self.home.commits, chunks, identity=identity, app=app, source=source, at=at)

    def committed(self, identity: Identity) -> CommitResult | None:
        """Return what this micro-batch wrote, or None. Raises BatchConflictError.

        Looks for news: a query asks for its first micro-batch.
        """
        commits = self.home.commits
        with commits.exclusive():
            commits.catch_up()
            if commits.sync:
                commits.make_durable()
            return committed(commits, identity)

    def outcome(self, unknown: CommitUnknownError | tuple[int, str]) -> CommitResult | None:
        """Return what a commit wrote of which nobody could tell; None: nothing, now and for ever.

        A change of a topic or a writer has no `ends`. The micro-batch of a query needs none of
        this: it comes again, and is dropped if it is in already.
        Args: unknown: the error, or its (position, attempt), which may be kept anywhere.
        Raises: InvalidRequestError: no commit was ever tried there. CommitUnknownError,
            StorageUnavailableError: ask again later.
        """
        return outcome(self.home.commits, unknown)

    def stager(self, framing: Framing, *, label: str | None = None) -> Stager:
        """Return what makes chunks of rows, for `commit`; `label` None keeps them in memory."""
        return self.home.stager(framing, label=label)

    def reset(self, writer: str, batch: int) -> list[str]:
        """Let a writer commit again what came after `batch`; -1: from its first batch on.

        `writer` is one writer, or a query's id for all of its sinks ("id/name"). What they had
        committed stays where it is; the batches that come again are appended anew, and are dropped
        as replays only from then on. Idempotent. Returns the writers that had gone further.
        """
        return admin.reset_writers(self.home.commits, writer, batch)

    # --- reading -----------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        start: Position = "earliest",
        end: Position = "latest",
        isolation: str = "read_uncommitted",
        columns: Sequence[str] | None = None,
        follow: bool = False,
        group: str | None = None,
        timeline: str = "all",
    ) -> pa.RecordBatchReader:
        """Stream records, partition after partition, each in offset order.

        Args:
            start, end: "earliest", "latest", a datetime (with zone) or {partition: offset}
                (-2 earliest, -1 latest); `end` is exclusive and fixed when the call is made.
            isolation: "read_committed" leaves out aborted transactions and stops at open ones.
            columns: some of key, value, topic, partition, offset, timestamp, timestampType,
                headers; what is left out is not decoded.
            follow: go on for ever with what is committed later; `end` is then ignored.
            group: register as a reader of that name (see `commit_offsets`). It begins where the
                group has committed to, where it hasn't, or if `start` is a datetime or offsets,
                at `start`. Records count as taken when the next ones are asked for; that is
                committed once a second, while there is nothing new, and at the end. So none is
                lost, and after a crash a second's records may come again.
            timeline: "current" leaves out the rows of micro-batches that a reset abandoned, as far
                as the ledger tells; what was given out before a reset stays given out.
        Raises: OffsetOutOfRangeError, UnknownTopicError at once; DataCorruptionError,
            TopicReplacedError from the reader's next batch, with the exact range.
        Memory: a few MiB at a time, whatever the topic's size.
        """
        progress = None if group is None else self.progress(group, topic)
        return read(
            self.view, topic, partitions, start, end,
            isolation=isolation, columns=columns, progress=progress, follow_on=follow,
            timeline=self.timeline(timeline),
        )  # fmt: skip

    def timeline(self, timeline: str) -> Timeline | None:
        """Return what tells which rows resets abandoned; None for "all", where nobody asks."""
        check_timeline(timeline)
        return Timeline(self.home.ledger) if timeline == "current" else None

    def progress(self, group: str, topic: str) -> Progress:
        """Return what keeps a group's offsets while one of its members reads `topic`."""
        return Progress(
            self.home.groups, self._clock, group, topic, LogTruncationDetector(self.view)
        )

    def commit_offsets(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Register how far a group has read: {topic: {partition: next offset to read}}.

        Works in mode "r" too, where the file system can be written. Topics with
        retention.respect.readers keep what the slowest group has not read, until that commits no
        more for offsets.retention.minutes. Other partitions of the group stay as they are.
        Raises: UnknownTopicError, InvalidRequestError (the group's name), OffsetOutOfRangeError
            past the high watermark; StorageUnavailableError, LogLockedError. Durable on return.
        """
        commit_checked(self.home.groups, self._clock, self.view, group, offsets)

    def readers(self) -> pa.Table:
        """Return the registered readers: streaming queries, and groups of plain readers.

        Columns: group, kind (query, group, or damaged: a file that can't be read and holds all
        back), host, app, topic, partition, offset (the next to read), log_start, high_watermark,
        lag (offsets up to the high watermark), time (of the commit), expired (no longer waited
        for). Null where the partition is gone.
        """
        found = self.home.groups.readers()
        kept_ms = self._options.offsets_retention_ms
        return readers_table(self.view, found, now_ms=self._clock(), retention_ms=kept_ms)

    def delete_reader(self, group: str) -> bool:
        """Forget a group, so that nothing waits for it; tells whether it was known.

        A reader that is still at work registers again. (kafka-consumer-groups --delete)
        """
        return self.home.groups.delete(group)

    @property
    def offsets_retention_ms(self) -> int:
        """How long (ms) a group's commit counts: offsets.retention.minutes."""
        return self._options.offsets_retention_ms

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return {partition: (log start offset, high watermark)}."""
        keys = [TopicPartition(topic, p) for p in self.view.partitions(topic)]
        return {key.partition: span for key, span in self.view.spans(keys).items()}

    def offline(self) -> dict[tuple[str, int], DataCorruptionError]:
        """Return {(topic, partition): what using it raises}, of those that can't be used.

        PartitionOfflineError where a log dir, directory or segments are missing; another
        DataCorruptionError where recovery found damage. See `give_up`.
        """
        return dict(self.view.offline().items())

    def give_up(
        self, topic: str | None = None, partitions: Iterable[int] | None = None, *,
        dry_run: bool = False,
    ) -> list[GivenUp]:
        """Give up what offline partitions (all, or a topic's) miss; returns what is lost.

        They go on behind it: no offset is given twice, and the ledger says what was given up.
        Raises: InvalidRequestError for a partition that isn't offline.
        """
        return self.home.give_up(topic, partitions, dry_run=dry_run)

    def end_offset_for_epoch(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """Return (leader epoch, end offset): where the history of `epoch` ends in a partition.

        A reader that remembers the epoch of what it read last finds out with it whether the log
        was restored to an earlier state since: then the end lies below its position. The epoch
        that comes back is the greatest one up to `epoch`; (-1, -1) for one that the log hasn't
        reached. Source: OffsetsForLeaderEpoch (KIP-101), LeaderEpochFileCache.endOffsetFor.
        Raises UnknownTopicError; DataCorruptionError if leader-epoch-checkpoint is damaged.
        """
        key = TopicPartition(topic, partition)
        end = self.view.spans([key])[key][1]
        known = reader_of(self.view, topic, partition).segments.leader_epochs()
        entries = [entry for entry in known if entry[1] <= end]
        return end_offset_for(entries, epoch, end)

    def offsets_for_times(
        self, topic: str, when: When, isolation: str = "read_uncommitted"
    ) -> dict[int, int | None]:
        """Return {partition: first offset at or after a time, None if there is none}.

        `when`: ms since the epoch, a datetime with zone, or {partition: either}; -1 is the end,
        -2 the log start, -3 the record with the greatest timestamp, -4 the first local record,
        -5 the last one with a remote copy, as in Kafka's ListOffsets.
        """
        check_isolation(isolation)
        by_partition: Mapping[int, Any] = (
            when if isinstance(when, Mapping) else dict.fromkeys(self.view.partitions(topic), when)
        )
        times = {p: to_ms(time) for p, time in by_partition.items()}
        spans = self.view.spans([TopicPartition(topic, p) for p in times])
        return offsets_for_times(self.view, topic, times, spans, isolation=isolation)

    def commits(self, writer: str | None = None) -> pa.Table:
        """Return the ledger: which commit wrote which offsets, when, for whom.

        Columns: offset, time, kind, writer, batch, fingerprint, topic, partition, first, end;
        one row for each partition that a commit touched. `writer` keeps only that writer's. A row
        of kind reset takes back the commits of its writer, above it, with a higher batch.
        """
        return commits_table(self.home.ledger, writer)

    @property
    def view(self) -> View:
        """The lock-free view that the reading methods use."""
        return self.home.view

    # --- the end -----------------------------------------------------------------------------

    def _committed_topic(self, name: str) -> TopicInfo:
        """A topic as the ledger has it: the topics file may lag if the disk failed meanwhile."""
        topic = self.home.commits.state.topics[name]
        self.view.forget()
        return self.home.describe(name, topic)

    def service_lease(self) -> Lease:
        """Return the lease that a service takes before it works on the log; not taken yet."""
        return self.home.service_lease()

    def close(self) -> None:
        """Close; the last writer leaves what a broker's clean stop would. Idempotent."""
        self.home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
