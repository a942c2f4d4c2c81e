"""`Log`: the public API of a log for plain Python."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import (
    CommitUnknownError,
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
)
from sparklog.html import foreign, table
from sparklog.log import admin, arguments
from sparklog.log.appending import Data, append, known_topic
from sparklog.log.arrow_reads import (
    TopicRead,
    check_isolation,
    known_partitions,
    read_topic,
    schema_of,
)
from sparklog.log.commit import CommitResult, Ends, Identity, commit, committed, outcome
from sparklog.log.commits_table import commits_table
from sparklog.log.group_lag import commit_checked, readers_table
from sparklog.log.group_progress import GroupProgress
from sparklog.log.partition_reader import reader_of
from sparklog.log.positions import Position, When, offsets_for_times, to_ms
from sparklog.log.reader_reset import ReaderResets, ResetPlan, ResetTopics, Target
from sparklog.log.timeline import timeline_of
from sparklog.log.truncation_detection import LogTruncationDetector
from sparklog.pluralize import pluralize
from sparklog.progress import Progress
from sparklog.storage.commits import Chunk, CommitLog
from sparklog.storage.deleted_topic import DeletedTopicInfo
from sparklog.storage.group_members import GroupAtWork, groups_from_json
from sparklog.storage.home import GivenUp, Home, MovedPartition
from sparklog.storage.leader_epochs import end_offset_for
from sparklog.storage.staging import Framing, Stager
from sparklog.storage.view import TopicInfo, Topics, View


def _config(config: object) -> Mapping[str, Any]:
    return arguments.mapping("config", config, "{option: value}, such as {'retention.ms': -1}")


class Log:
    """An open log, returned by `sparklog.open`; a context manager.

    Mode "r" takes no lock and changes no file, except for the offsets of a group that the caller
    names. Mode "rw" prevents a Kafka broker from starting on the log until the last process has
    closed it. Many processes and threads can write at the same time; their commits are serialized.
    Reading methods return the committed records of all writers.

    Every method also raises StorageUnavailableError if the disk or the store fails, and
    InvalidRequestError if the log was closed.

    Examples:
        >>> log.append("flights", pa.table({"key": ["N1"], "value": ["600"]}), partition=0)
        {'flights': {0: (..., ...)}}
        >>> log.read("flights", columns=["value"]).read_all().num_rows
        601
    """

    def __init__(self, home: Home, *, options: LogOptions, clock: Clock) -> None:
        """Create the object for an opened home, which `close` closes.

        Internal: users call `sparklog.open`.
        """
        self._home = home
        self.path = home.path
        self._options, self._clock = options, clock
        self._is_closed = False

    # --- topics ------------------------------------------------------------------------------

    def topics(self) -> Topics:
        """Return {name: TopicInfo} of all topics except internal ones.

        Examples:
            >>> {name: topic.partitions for name, topic in log.topics().items()}
            {'flights': 2}
        """
        return Topics(self._view.topics())

    def topic(self, name: str) -> TopicInfo:
        """Return a topic.

        Args:
            name: The name of the topic.

        Raises:
            UnknownTopicError: There is no such topic.

        Examples:
            >>> log.topic("flights").partitions
            2
        """
        arguments.topic_name(name)
        topics = self.topics()
        if name not in topics:
            self._view.partitions(name)  # raises if the topic does not exist
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
        """Create a topic. Each new partition is placed in the log dir with the fewest partitions.

        A topic that is created again after its deletion continues at the end offset of the deleted
        topic, so that an offset never identifies two records.

        Args:
            name: The name of the topic.
            partitions: The number of partitions.
            config: Kafka's topic options, such as {"retention.ms": 86400000}. Other options have
                the log's defaults, then Kafka's. The only default that differs from Kafka's is
                retention.ms=-1, which keeps all records.
            if_not_exists: Whether an existing topic is returned unchanged.
            starts: {partition: first offset}, for records that are copied from elsewhere and retain
                their offsets (`sparklog import`). Offsets of such a topic may have gaps.

        Returns:
            The new topic.

        Raises:
            InvalidRequestError: The name is reserved, exists, or collides with another; or the
                config is invalid.

        Examples:
            >>> log.create_topic("alerts", partitions=4, config={"retention.ms": 86_400_000}).name
            'alerts'
        """
        arguments.topic_name(name)
        partitions = arguments.integer("partitions", partitions)
        given = {} if config is None else _config(config)
        first = None if starts is None else arguments.partition_offsets("starts", starts)
        admin.create_topic(self._commits, name, partitions, given, if_not_exists, first)
        return self._committed_topic(name)

    def alter_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, object | None] | None = None,
    ) -> TopicInfo:
        """Change options of a topic, or add partitions.

        Args:
            name: The name of the topic.
            partitions: The new number of partitions, which can only grow.
            config: {option: value}; the value None resets an option to its default. Other options
                keep their values.

        Returns:
            The changed topic.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidRequestError: An option is invalid, or the number of partitions would shrink.

        Examples:
            >>> info = log.alter_topic("flights", partitions=4, config={"retention.ms": 86_400_000})
            >>> info.partitions, info.config.retention_ms
            (4, 86400000)
        """
        arguments.topic_name(name)
        if partitions is not None:
            partitions = arguments.integer("partitions", partitions, "an integer, or None")
        given = {} if config is None else _config(config)
        admin.alter_topic(self._commits, name, partitions, given)
        return self._committed_topic(name)

    def delete_topic(self, name: str, *, topic_id: str | None = None, now: bool = False) -> int:
        """Delete a topic. Active readers of the topic get an error.

        The topic can be restored with `undelete_topic` for its file.delete.delay.ms (default:
        60000). After that a service, or the next process that opens the log for writing, deletes
        its records.

        Args:
            name: The name of the topic.
            topic_id: Delete the topic only if it has this id, and not another topic with the same
                name.
            now: Delete the records at once and for good, also those of a topic that was deleted
                before.

        Returns:
            For how long (ms) the topic can be restored.

        Raises:
            UnknownTopicError: There is no such topic.

        Examples:
            >>> log.delete_topic("flights")
            60000
        """
        arguments.topic_name(name)
        arguments.optional_text("topic_id", topic_id, "a topic id, a string")
        delay_ms = admin.delete_topic(self._commits, name, topic_id, now=now)
        self._view.forget()  # this handle must not read the deleted topic from its cache
        return delay_ms

    def undelete_topic(
        self, name: str, *, topic_id: str | None = None, new_name: str | None = None
    ) -> TopicInfo:
        """Restore a deleted topic with the same id, options, offsets, leader epochs and producers.

        Args:
            name: The name of the topic when it was deleted.
            topic_id: Selects a deleted topic if several had this name; by default the newest.
            new_name: A name for the restored topic, if another topic has taken its name.

        Returns:
            The restored topic.

        Raises:
            UnknownTopicError: No such topic can be restored any more.
            InvalidRequestError: Another topic has its name or its offsets, or some of its files are
                missing.

        Examples:
            >>> restorable_ms = log.delete_topic("flights")
            >>> log.undelete_topic("flights", new_name="flights-2013").name
            'flights-2013'
        """
        arguments.topic_name(name)
        arguments.optional_text("topic_id", topic_id, "a topic id, a string")
        arguments.optional_text("new_name", new_name, "the name of a topic, a string")
        given = admin.undelete_topic(self._commits, name, topic_id, new_name)
        return self._committed_topic(given)

    def deleted_topics(self) -> list[DeletedTopicInfo]:
        """Return the deleted topics that can be restored, ordered by when they expire."""
        topics = [topic.info() for topic in self._open_home.ledger.deleted()]
        return sorted(topics, key=lambda topic: (topic.until_ms, topic.name))

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Raise log start offsets, so that earlier records can't be read any more.

        Retention deletes the files later.

        Args:
            topic: The name of the topic.
            offsets: {partition: new log start offset}; -1 means the high watermark.

        Returns:
            {partition: resulting log start offset}.

        Raises:
            OffsetOutOfRangeError: An offset is past the high watermark.
            UnknownTopicError: The topic or a partition does not exist.

        Source: KIP-107.

        Examples:
            >>> log.delete_records("flights", {0: 100})
            {0: 100}
        """
        arguments.topic_name(topic)
        starts = arguments.partition_offsets("offsets", offsets)
        return admin.delete_records(self._commits, topic, starts)

    def move_partition(
        self,
        topic: str,
        partition: int,
        to: str,
        *,
        progress: Progress | None = None,
    ) -> MovedPartition:
        """Move a partition to another log dir of the log, while no other writer has the log open.

        Services, endpoints and queries that write must be stopped. The write lock is held until
        the partition is moved. Readers continue, and find the new place without a restart. Each
        batch is checked. Offsets, epochs and producers stay the same. After a crash, the complete
        partition is in the old or in the new log dir.

        Args:
            topic: The topic of the partition.
            partition: The number of the partition.
            to: The path of the log dir that the partition moves to.
            progress: Called with the number of bytes copied, and the total.

        Raises:
            InvalidRequestError: `to` is no log dir of this log, or contains the partition already.
            UnknownTopicError: The log has no such partition.
            LogLockedError: Another session has the log open for writing.
            StorageUnavailableError: A log dir is missing, full or fails.
            DataCorruptionError: A batch is damaged.

        Cost:
            The partition is read and written once.
        """
        arguments.topic_name(topic)
        partition = arguments.partition_number(partition)
        arguments.text("to", to, "the path of a log dir, a string")
        moved = self._open_home.move_partition(topic, partition, to, progress=progress)
        self._view.forget()
        return moved

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
        """Append records to a topic.

        Args:
            topic: The name of the topic.
            data: Columns: value (binary or string; null is a tombstone) and optionally key, headers
                (list<struct<key: string, value: binary>>), timestamp, partition. A table or batch
                is a single atomic commit; a RecordBatchReader is committed every 64 MiB.
            partition: The partition of all rows. By default the column partition decides; where it
                is null or missing, murmur2 of the key as in Kafka's default partitioner; without a
                key, a sticky partition that changes every batch.size bytes.
            producer: (producer id, epoch, sequence of the first row) of an idempotent producer,
                with `partition`. A repeated append returns its old offsets.
            framing: How rows are grouped into record batches and compressed.

        Returns:
            {topic: {partition: (first offset, end offset)}} of the appended records.

        Raises:
            InvalidRequestError: An argument or the data are invalid. No record was written.
            UnknownTopicError: The topic or partition does not exist.
            RecordTooLargeError: A record exceeds max.message.bytes. No record was written.
            FencedError: A producer with a newer epoch exists.
            OutOfOrderSequenceError: The sequence leaves a gap.
            StorageUnavailableError: The disk is full or the store fails.

        Cost:
            An fsync of each touched partition, of the ledger and of the watermark file.

        Examples:
            >>> rows = pa.table({"key": ["N1", "N2"], "value": ["601", "602"]})
            >>> ends = log.append("flights", rows)
            >>> sum(end - first for first, end in ends["flights"].values())
            2
        """
        admin.refuse_internal(arguments.topic_name(topic))
        if partition is not None:
            partition = arguments.partition_number(partition)
        if producer is not None:
            producer = arguments.producer_id(producer)
        if framing is not None and not isinstance(framing, Framing):
            raise arguments.refused("framing", framing, "a sparklog.storage.staging.Framing")
        info = known_topic(self._open_home, topic, self.topic)
        return append(
            self._commits, self._open_home.stager, info, data,
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
        """Commit staged chunks of any topics atomically, or skip a replay.

        A commit with an `identity` is accepted once. Another commit with the same writer and batch
        number writes no records and returns the result of the first commit.

        Args:
            chunks: The chunks that `Stager.finish` returned, in their order.
            identity: The micro-batch that the chunks belong to.
            app: The application that commits, for `Log.commits`.
            source: The position in the source, as a JSON object, for `Log.commits`.
            at: {(topic, partition): end offset that the partition must have before the commit}.

        Returns:
            The offsets of the records, and whether the commit was a replay.

        Raises:
            BatchConflictError: The batch was committed with another fingerprint.
            InvalidRequestError: An argument is invalid, or a partition does not end at `at`.
            UnknownTopicError: A topic or partition does not exist.
            StorageUnavailableError: The disk is full or the store fails. No chunk was committed.
            CommitUnknownError: The outcome is unknown; see `outcome`.
            DataCorruptionError: A partition is offline.

        Cost:
            In a log dir, an fdatasync per partition, of the ledger and of the watermark file.

        Examples:
            >>> stager = log.stager(sparklog.Framing())
            >>> stager.add(log.topic("flights"), pa.record_batch({"key": ["N1"], "value": ["601"]}))
            >>> july = sparklog.Identity(writer="loader", batch=7, fingerprint="2013-07.csv")
            >>> log.commit(stager.finish(), identity=july).replayed
            False
        """
        if not isinstance(chunks, Sequence) or not all(isinstance(c, Chunk) for c in chunks):
            raise arguments.refused("chunks", chunks, "a list of the chunks that a stager returned")
        return commit(self._commits, chunks, identity=identity, app=app, source=source, at=at)

    def committed(self, identity: Identity) -> CommitResult | None:
        """Return the result of a micro-batch's commit, or None if the batch is not committed.

        The method first reads the latest commits of all writers.

        Args:
            identity: The micro-batch.

        Raises:
            BatchConflictError: The batch was committed with another fingerprint.

        Examples:
            >>> print(log.committed(sparklog.Identity(writer="loader", batch=7, fingerprint="")))
            None
        """
        commits = self._commits
        with commits.exclusive():
            commits.catch_up()
            if commits.sync:
                # A writer may have crashed before its fsync, and "committed" must mean durable.
                commits.make_durable()
            return committed(commits, identity)

    def outcome(self, unknown: CommitUnknownError | tuple[int, str]) -> CommitResult | None:
        """Return the result of a commit of unknown outcome, or None if the commit failed.

        None is final: the commit cannot take effect later. A change of a topic or writer has no
        `ends`. A Spark query does not need this method: it repeats the micro-batch, and the log
        skips a replay.

        Args:
            unknown: The error, or its (position, attempt), which can be stored anywhere.

        Raises:
            InvalidRequestError: No commit was attempted at this position.
            CommitUnknownError: The outcome is still unknown. Try again later.
            StorageUnavailableError: The store does not respond. Try again later.
        """
        if not isinstance(unknown, CommitUnknownError):
            unknown = arguments.commit_attempt("unknown", unknown)
        return outcome(self._commits, unknown)

    def stager(self, framing: Framing, *, label: str | None = None) -> Stager:
        """Return a stager, which turns rows into chunks for `commit`.

        Args:
            framing: How rows are grouped into record batches and compressed.
            label: The name prefix of staged files or objects. Without a label, all chunks stay in
                memory.
        """
        return self._open_home.stager(framing, label=label)

    def reset(self, writer: str, batch: int) -> list[str]:
        """Let a writer commit again after `batch`; -1 means from its first batch.

        The records of later batches stay in the log and are marked as abandoned. When the writer
        commits these batches again, they are appended again; further repetitions are dropped as
        replays. Calling the method again has no effect.

        After a repair of the ledger that lost commits, a writer's next batch is rejected until this
        method declares which of its batches is the last batch in the log. The declared batch may be
        later than the ledger's last batch; a replay of the declared batch is then dropped.

        Args:
            writer: A writer, or the id of a query for all of its sinks ("id/name").
            batch: The last batch that stays valid.

        Returns:
            The writers that had committed a later batch.

        Examples:
            >>> for batch in range(3):
            ...     identity = sparklog.Identity(writer="loader", batch=batch, fingerprint="")
            ...     result = log.commit([], identity=identity)
            >>> log.reset("loader", batch=0)
            ['loader']
        """
        arguments.text("writer", writer, "a writer or the id of a query, a string")
        batch = arguments.integer("batch", batch)
        return admin.reset_writers(self._commits, writer, batch)

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
        """Return a reader of records, partition by partition, each in offset order.

        Args:
            topic: The name of the topic.
            partitions: The partitions to read; all by default.
            start: "earliest", "latest", a datetime with a time zone, or {partition: offset} (-2 is
                the earliest, -1 the latest offset).
            end: The same. `end` is exclusive and resolved when the method is called.
            isolation: "read_committed" skips aborted transactions and stops at open ones.
            columns: Some of key, value, topic, partition, offset, timestamp, timestampType,
                headers. Other columns are not decoded.
            follow: Continue forever with records that are committed later; `end` is ignored.
            group: Register as a reader with this name (see `commit_offsets`). Reading starts at the
                group's committed offsets, or at `start` if the group has none or if `start` is a
                datetime or offsets. Records count as consumed when the caller requests the next
                records. Offsets are committed once per second, when there are no new records, and
                at the end. No record is lost; after a crash, the records of about one second may be
                read again.
            timeline: "current" leaves out rows of micro-batches that a reset abandoned, as far as
                the ledger knows. Rows that were returned before the reset are not taken back.

        Returns:
            A reader of record batches with the chosen columns.

        Raises:
            OffsetOutOfRangeError: `start` or `end` is outside of the partition.
            UnknownTopicError: The topic or a partition does not exist.
            InvalidRequestError: An argument is invalid, or the log stores no groups (a broker's
                directory, an archive).
            DataCorruptionError: Records are damaged; raised by the reader, with the offset range.
            TopicReplacedError: The topic was re-created; raised by the reader.

        Cost:
            A few MiB of memory, for topics of any size.

        Examples:
            >>> log.read("flights", partitions=[0], start={0: 10}, end={0: 12},
            ...          columns=["partition", "offset"]).read_all().to_pylist()
            [{'partition': 0, 'offset': 10}, {'partition': 0, 'offset': 11}]
        """
        arguments.topic_name(topic)
        start, end = arguments.position("start", start), arguments.position("end", end)
        numbers = arguments.partition_numbers(partitions)
        progress = None if group is None else group_progress(self, group, topic)
        wanted = TopicRead(
            view=self._view, topic=topic, partitions=numbers, progress=progress,
            timeline=timeline_of(self._open_home, timeline), schema=schema_of(columns),
            isolation=isolation,
        )  # fmt: skip
        return read_topic(wanted, start, end, follow_on=follow)

    def commit_offsets(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Commit how far a group has read.

        Other partitions of the group keep their offsets. The method works in mode "r" too, if the
        file system can be written. Topics with retention.respect.readers retain the records that
        the slowest group has not read, unless it has not committed for offsets.retention.minutes.
        The commit is durable on return.

        Args:
            group: The name of the group.
            offsets: {topic: {partition: next offset to read}}.

        Raises:
            UnknownTopicError: A topic or partition does not exist.
            InvalidRequestError: The group's name is invalid, or the log stores no groups (a
                broker's directory, an archive).
            OffsetOutOfRangeError: An offset is above the high watermark.
            StorageUnavailableError: The log can't be written.
            LogLockedError: Another process holds the lock.

        Examples:
            >>> log.commit_offsets("dashboard", {"flights": {0: 100, 1: 80}})
        """
        given = arguments.topic_offsets("offsets", offsets)
        commit_checked(self._open_home.groups, self._clock, self._view, group, given)

    def readers(self, topic: str | None = None) -> pa.Table:
        """Return a table of the registered readers: streaming queries and consumer groups.

        Args:
            topic: Return the readers of this topic only, which costs less in a log of many topics.

        Returns:
            Columns: group; kind (query, group, or damaged: an unreadable file, because of which all
            topics retain their records); query (the query's name, if known); host; app; topic;
            partition; offset (the next to read); log_start; high_watermark; lag (high watermark
            minus offset); time (of the commit); expired (retention does not wait for the reader any
            more). Columns of a deleted partition are null.

        Examples:
            >>> log.commit_offsets("dashboard", {"flights": {0: 100}})
            >>> log.readers().select(["group", "partition", "offset"]).to_pylist()
            [{'group': 'dashboard', 'partition': 0, 'offset': 100}]
        """
        arguments.optional_text("topic", topic, "the name of a topic, a string")
        readers = self._open_home.groups.readers()
        retention_ms = self._options.offsets_retention_ms
        return readers_table(
            self._view, readers, now_ms=self._clock(), retention_ms=retention_ms, topic=topic
        )

    def delete_reader(
        self, group: str, partitions: Mapping[str, Iterable[int]] | None = None
    ) -> bool:
        """Delete a group's offsets, so that retention does not wait for the group.

        An active reader registers again.

        Args:
            group: The name of the group.
            partitions: {topic: partitions} whose offsets are deleted; by default all.

        Returns:
            Whether the group or offsets existed.

        Raises:
            GroupNotEmptyError: Kafka clients in the group read a topic of `partitions`.

        Source: kafka-consumer-groups --delete and --delete-offsets.

        Examples:
            >>> log.delete_reader("dashboard")
            False
        """
        if partitions is None:
            return self._open_home.groups.delete(group)
        return self._resets().forget(group, arguments.topic_partitions("partitions", partitions))

    def reset_reader(
        self,
        group: str,
        to: Target | None = None,
        topics: ResetTopics | None = None,
        *,
        shift_by: int | None = None,
        offsets: Mapping[str, Mapping[int, int]] | None = None,
    ) -> ResetPlan:
        """Plan new offsets for a group; the plan's `execute` commits them.

        A group that does not exist is created by `execute`. Pass exactly one of `to`, `shift_by`
        and `offsets`.

        Args:
            group: The name of the group.
            to: "earliest"; "latest"; "current" (the committed offset, or the end without a
                committed offset); an offset; a datetime with a time zone, for the first record at
                or after it; or a timedelta before now.
            topics: A topic, several topics, or {topic: partitions} (None selects all partitions).
                By default the partitions that the group has committed.
            shift_by: The number of offsets to move from the committed offset.
            offsets: {topic: {partition: offset}}.

        Raises:
            GroupNotEmptyError: Kafka clients are members of the group.
            InvalidRequestError: The group is a streaming query, which continues from its
                checkpoint; or the log stores no groups.
            UnknownTopicError: A topic or partition does not exist.

        Source: kafka-consumer-groups --reset-offsets.

        Examples:
            >>> log.reset_reader("dashboard", to="earliest", topics="flights").execute()
        """
        if shift_by is not None:
            shift_by = arguments.integer("shift_by", shift_by)
        given = None if offsets is None else arguments.topic_offsets("offsets", offsets)
        return self._resets().plan(group, to, topics, shift_by=shift_by, offsets=given)

    def groups_at_work(self) -> dict[str, GroupAtWork]:
        """Return {group: GroupAtWork} of the groups that an endpoint of the log coordinates.

        The information is up to a second old. The result is empty if no endpoint is running.
        """
        told = self._open_home.endpoint_lease({}).published() or {}
        return groups_from_json(told.get("groups"))

    def _resets(self) -> ReaderResets:
        return ReaderResets(self._open_home.groups, self._clock, self._view, self.groups_at_work)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return {partition: (log start offset, high watermark)}.

        Args:
            topic: The name of the topic.

        Raises:
            UnknownTopicError: There is no such topic.

        Examples:
            >>> sum(end - start for start, end in log.offsets("flights").values())
            600
        """
        arguments.topic_name(topic)
        keys = [TopicPartition(topic, p) for p in known_partitions(self._view, topic, None)]
        return {key.partition: span for key, span in self._view.spans(keys).items()}

    def offline(self) -> dict[tuple[str, int], DataCorruptionError]:
        """Return {(topic, partition): error} of the partitions that can't be used.

        The error is a PartitionOfflineError if a log dir, directory or segments are missing, or
        another DataCorruptionError if recovery found damage. `give_up` brings such partitions back.

        Examples:
            >>> log.offline()
            {}
        """
        return dict(self._view.offline().items())

    def give_up(
        self,
        topic: str | None = None,
        partitions: Iterable[int] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[GivenUp]:
        """Bring offline partitions back online without the missing records; return the loss.

        The partitions continue after the lost offsets, which are never assigned again. The ledger
        records the loss.

        Args:
            topic: The topic whose offline partitions are given up; by default all topics.
            partitions: Numbers of offline partitions; by default all offline partitions of the
                topic.
            dry_run: Return the loss without changing the log.

        Raises:
            InvalidRequestError: A partition is not offline.
        """
        arguments.optional_text("topic", topic, "the name of a topic, a string")
        numbers = arguments.partition_numbers(partitions)
        if topic is None and numbers is not None:
            raise InvalidRequestError(
                f"partitions={numbers}: pass the topic that the partitions belong to"
            )
        if topic is not None:
            known_partitions(self._view, topic, numbers)
        return self._open_home.give_up(topic, numbers, dry_run=dry_run)

    def end_offset_for_epoch(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """Return (leader epoch, end offset) of the history of `epoch` in a partition.

        A reader that stores the epoch of the last record it read detects a restored log: the end
        offset is then below the reader's position.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
            epoch: The leader epoch of the last record that was read.

        Returns:
            The greatest epoch up to `epoch` and its end offset, or (-1, -1) if the log has not
            reached `epoch`.

        Raises:
            UnknownTopicError: The topic or partition does not exist.
            DataCorruptionError: leader-epoch-checkpoint is damaged.

        Source: OffsetsForLeaderEpoch (KIP-101), LeaderEpochFileCache.endOffsetFor.

        Examples:
            >>> epoch, end = log.end_offset_for_epoch("flights", 0, epoch=0)
            >>> epoch, end == log.offsets("flights")[0][1]
            (0, True)
        """
        arguments.topic_name(topic)
        epoch = arguments.integer("epoch", epoch)
        numbers = [arguments.partition_number(partition)]
        key = TopicPartition(topic, *known_partitions(self._view, topic, numbers))
        end = self._view.spans([key])[key][1]
        known = reader_of(self._view, topic, partition).segments.leader_epochs()
        entries = [entry for entry in known if entry[1] <= end]
        return end_offset_for(entries, epoch, end)

    def offsets_for_times(
        self, topic: str, when: When, isolation: str = "read_uncommitted"
    ) -> dict[int, int | None]:
        """Return {partition: first offset at or after a time}; None without such a record.

        Args:
            topic: The name of the topic.
            when: Milliseconds since the epoch, a datetime with a time zone, or {partition: either}.
                As in Kafka's ListOffsets, -1 is the end, -2 the log start, -3 the record with the
                greatest timestamp, -4 the first local record, -5 the last record with a remote
                copy.
            isolation: "read_committed" considers records up to the last stable offset.

        Raises:
            UnknownTopicError: The topic or a partition does not exist.

        Source: Kafka's ListOffsets.

        Examples:
            >>> log.offsets_for_times("flights", when=0)
            {0: 0, 1: 0}
        """
        check_isolation(isolation)
        arguments.topic_name(topic)
        by_partition: Mapping[Any, Any]
        if isinstance(when, Mapping):
            by_partition = when
        else:
            by_partition = dict.fromkeys(known_partitions(self._view, topic, None), when)
        times = {
            arguments.partition_number(p, "when"): to_ms(arguments.point_in_time("when", time))
            for p, time in by_partition.items()
        }
        known_partitions(self._view, topic, list(times))
        spans = self._view.spans([TopicPartition(topic, p) for p in times])
        return offsets_for_times(self._view, topic, times, spans, isolation=isolation)

    def commits(self, writer: str | None = None) -> pa.Table:
        """Return the ledger as a table: which commit wrote which offsets.

        Args:
            writer: Return only the commits of this writer.

        Returns:
            Columns: offset, time, kind, writer, query (the query's name, if the ledger contains
            it), batch, fingerprint, topic, partition, first, end; a row per partition of a commit.
            A row of kind reset abandons the earlier commits of its writer with a higher batch.

        Examples:
            >>> import pyarrow.compute as pc
            >>> appended = log.commits().filter(pc.field("topic") == "flights")
            >>> sum(row["end"] - row["first"] for row in appended.to_pylist() if row["end"])
            600
        """
        arguments.optional_text("writer", writer, "a writer, a string")
        return commits_table(self._open_home.ledger, writer)

    @property
    def _view(self) -> View:
        return self._open_home.view

    @property
    def _open_home(self) -> Home:
        """The home of the log. Raises InvalidRequestError if the log is closed."""
        if self._is_closed:
            raise InvalidRequestError(
                f"{self.path} was closed by Log.close: open it again with sparklog.open"
            )
        return self._home

    @property
    def _commits(self) -> CommitLog:
        return self._open_home.commits

    # --- the end -----------------------------------------------------------------------------

    def _committed_topic(self, name: str) -> TopicInfo:
        """Return a topic as of the ledger; the topics file can be older after a disk failure."""
        topic = self._commits.state.topics[name]
        self._view.forget()
        return self._home.describe(name, topic)

    def close(self) -> None:
        """Close the log. The last writer leaves the files of a broker's clean shutdown.

        Closing a closed log has no effect.
        """
        self._is_closed = True
        self._home.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def _repr_html_(self) -> str:
        """Return a table of the topics and their offsets, for notebooks.

        Cost: `offsets` of each topic.
        """
        try:
            topics = self.topics()
            spans = {name: self.offsets(name) for name in topics}
        except SparklogError as error:
            return table(foreign(f"{self.path}: {error}"), (), ())
        rows = [
            (
                foreign(name),
                topic.partitions,
                sum(end - start for start, end in spans[name].values()),
                f"{len(topic.offline)} offline" if topic.offline else "",
            )
            for name, topic in sorted(topics.items())
        ]
        caption = [self.path, ": ", pluralize(len(topics), "topic")]
        return table(caption, ("topic", "partitions", "offsets", ""), rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# The functions below are for sparklog's own packages. They are not part of the public API.


def home_of(log: Log) -> Home:
    """Return the home of a log, also after the log was closed."""
    return log._home


def is_replaced(log: Log) -> bool:
    """Return True if a log can't be used any more, or if another log is at its path."""
    home = log._home
    return home.lost is not None or not home.is_current()


def view_of(log: Log) -> View:
    """Return the view that the reading methods of a log use.

    Raises:
        InvalidRequestError: The log was closed.
    """
    return log._view


def options_of(log: Log) -> LogOptions:
    """Return the log-wide options that a log was opened with."""
    return log._options


def group_progress(log: Log, group: str, topic: str) -> GroupProgress:
    """Return the object that commits a group's offsets while a member reads a topic."""
    home = log._open_home
    return GroupProgress(
        home.groups, log._clock, group, topic,
        LogTruncationDetector(home.view), home=home.view.home,
    )  # fmt: skip
