"""Imports a topic of a running Kafka cluster, with offsets, timestamps, keys and headers.

Offsets without a record in Kafka (compacted records, markers and aborted records of transactions)
have no record here either. A repeated import continues at the end of the log, so it can be stopped
at any time, and no record is copied twice.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from sparklog.clock import monotonic_ms
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError, StorageUnavailableError
from sparklog.format.columns import HEADERS_TYPE
from sparklog.log.arrow_reads import check_isolation
from sparklog.log.log import Log
from sparklog.progress import Progress, shows_progress
from sparklog.storage.staging import Framing
from sparklog.tools.moving.kafka_client import (
    TIMEOUT_S,
    client,
    errors,
    import_writer,
    library,
    metadata,
    translated,
)
from sparklog.tools.moving.preserved_offsets import COMMIT_BYTES, Run, commit_runs, copied_ends

POLL_RECORDS: Final = 10_000  # messages
_SILENCE_MS: Final = 60_000  # without a message although some are expected
_RECORD_BYTES: Final = 32  # beside key and value
_MS: Final = pa.timestamp("ms", tz="UTC")
_NOT_KEPT: Final = ("message.timestamp.type",)  # every record retains its own timestamp


@dataclass(slots=True, kw_only=True)
class Imported:
    """The result of an import: `records`, and {partition: (first, end)} offsets with gaps."""

    topic: str
    kafka_topic: str
    records: int = 0
    commits: int = 0
    stopped: bool = False
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic of a running Kafka cluster, with the settings of the consumer.

    Attributes:
        config: Settings of librdkafka (security.protocol, ...).
        isolation: "read_committed" copies no aborted records and stops at open transactions.
    """

    bootstrap_servers: str
    topic: str
    config: Mapping[str, object] = field(default_factory=dict)
    isolation: str = "read_committed"

    def check(self) -> None:
        """Check that the topic exists in Kafka, before the log's topic is created.

        Raises the errors of `import_topic`.
        """
        with self.consumer() as consumer:
            metadata(consumer, self.topic, self.bootstrap_servers)

    @contextlib.contextmanager
    def consumer(self) -> Iterator[Any]:
        """Open a consumer, which commits no offsets."""
        settings = {
            "group.id": "sparklog-import",  # no offsets are committed to it
            "enable.partition.eof": True, "check.crcs": True, **self.config,
            # After `config`, so that it can't override them: the log's ends are the progress, and
            # a reset would skip deleted offsets silently instead of reporting the loss.
            "enable.auto.commit": False, "auto.offset.reset": "error",
            "isolation.level": self.isolation,
        }  # fmt: skip
        consumer = client(library().Consumer, self.bootstrap_servers, settings)
        try:
            yield consumer
        finally:
            consumer.close()


@shows_progress("importing")
def import_topic(
    log: Log,
    topic: str,
    kafka: KafkaSource,
    *,
    topic_config: Mapping[str, object] | None = None,
    framing: Framing | None = None,
    fail_on_data_loss: bool = True,
    progress: Progress | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Imported:
    """Copy the records of a Kafka topic that the log's topic `topic` doesn't have yet.

    Timestamps stay, as CreateTime. A consumer doesn't get the codec, producer or transaction of a
    record, so these are not preserved.

    Args:
        log: The log, open with mode "rw". A missing topic is created with as many partitions, the
            same first offsets, and the configs that are set on the Kafka topic (retention.ms -1 if
            it isn't set).
        topic: The topic of the log.
        kafka: The Kafka topic.
        topic_config: Configs that replace those of the Kafka topic.
        framing: How records are grouped into batches.
        fail_on_data_loss: Whether records that Kafka deleted before they were copied are an error.
            Otherwise they become a gap.
        progress: Called with the number of offsets done, and the total.
        stopped: If this function returns True, the import ends after the next commit.

    Raises:
        UnknownTopicError: The Kafka topic does not exist.
        OffsetOutOfRangeError: Records were deleted before they were copied; see
            `fail_on_data_loss`.
        InvalidRequestError: The topic contains other records than Kafka's.
        StorageUnavailableError: The broker does not answer.

    Cost:
        A Python object of confluent-kafka per message.
    """
    check_isolation(kafka.isolation)
    done = Imported(topic=topic, kafka_topic=kafka.topic)
    began = monotonic_ms()
    with kafka.consumer() as consumer:
        source = _Source(consumer, kafka, done)
        starts = _prepare(log, source, done, topic_config or {}, fail_on_data_loss)
        copying = _Copying(log, source, done, framing or Framing(), starts)
        copying.run(progress, stopped)
    done.took_ms = int(monotonic_ms() - began)
    return done


class _Source:
    """A Kafka topic: identity, partitions and offsets."""

    def __init__(self, consumer: Any, source: KafkaSource, done: Imported) -> None:
        topic, servers = source.topic, source.bootstrap_servers
        self.consumer, self.topic = consumer, topic
        self.what = f"topic {topic} at {servers}"
        cluster, self.partitions = metadata(consumer, topic, servers)
        kafka = library()
        self._admin = client(kafka.admin.AdminClient, servers, dict(source.config))
        self.writer = import_writer(self._admin, cluster, topic, done.topic, self.what)
        self.spans: dict[int, tuple[int, int]] = {}
        for p in self.partitions:
            with errors(f"{self.what}, partition {p}"):
                place = kafka.TopicPartition(topic, p)
                low, high = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
                self.spans[p] = (low, high)

    def configs(self) -> dict[str, str]:
        """Return the configs that are set on the Kafka topic and known to sparklog."""
        kafka = library()
        resource = kafka.admin.ConfigResource(kafka.admin.RESOURCE_TOPIC, self.topic)
        with errors(f"{self.what}: its configs"):
            entries = self._admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        dynamic = kafka.admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        found: dict[str, str] = {}
        for name, entry in entries.items():
            if entry.source == dynamic and entry.value is not None and name not in _NOT_KEPT:
                try:
                    TopicConfig.parse({name: entry.value})
                except InvalidRequestError:
                    continue  # a config of replication, for example
                # The cluster's tiered storage doesn't apply to the log, which has its own or none.
                if not name.startswith(("remote.", "local.")):
                    found[name] = entry.value
        return found


def _prepare(
    log: Log,
    source: _Source,
    done: Imported,
    topic_config: Mapping[str, object],
    fail_on_data_loss: bool,
) -> dict[int, int]:
    """Create the log's topic, or check that the topic is a copy of the Kafka topic.

    Returns:
        {partition: offset} at which the copy continues.
    """
    spans, known = source.spans, log.topics().get(done.topic)
    if known is None:
        # Otherwise the log's default retention would delete old records right after the import.
        wanted = {"retention.ms": "-1", **source.configs(), **topic_config}
        starts = {p: low for p, (low, _) in spans.items()}
        log.create_topic(done.topic, len(spans), wanted, starts=starts)
        return starts
    ends = copied_ends(log, done.topic, source.writer, source.what)
    # Partitions that are added now have no copied records, so no record of theirs can be lost:
    # below, only `copied` partitions are checked for data loss.
    copied = set(ends)
    if len(spans) > len(ends):
        log.alter_topic(done.topic, partitions=len(spans))
        ends |= {p: end for p, (_, end) in log.offsets(done.topic).items() if p not in ends}
    for p, (low, high) in spans.items():
        at = ends[p]
        # After an unclean leader election a broker assigns offsets again. To continue would mix two
        # histories in a partition.
        if at > high:
            raise OffsetOutOfRangeError(
                f"{done.topic}-{p} ends at {at}, and Kafka's ends at {high}: Kafka has lost "
                "records that were copied, and assigns their offsets to other records; import to "
                "a new topic",
                offset=at, start=low, end=high,
            )  # fmt: skip
        if at < low and p in copied and fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{done.topic}-{p}: offsets [{at}, {low}) were deleted from Kafka, by retention or "
                "kafka-delete-records, before they were copied; use --no-fail-on-data-loss "
                "to continue without them",
                offset=at, start=low, end=high,
            )  # fmt: skip
    return {p: ends[p] for p in spans}


class _Copying:
    """The main loop of an import, which consumes messages and commits them in runs."""

    def __init__(
        self, log: Log, source: _Source, done: Imported, framing: Framing, at: dict[int, int]
    ) -> None:
        self._log, self._source, self._done, self._framing = log, source, done, framing
        self._at = dict(at)  # where each partition of the log ends
        self._first = dict(at)
        # The end is fixed at the start; otherwise an import of a busy topic would never finish.
        self._ends = {p: max(high, at[p]) for p, (_, high) in source.spans.items()}
        self._reading = {p for p, end in self._ends.items() if at[p] < end}
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self._seen = dict(at)  # the offset after the last message
        self._bytes = 0

    def run(
        self, progress: Progress | None, stopped: Callable[[], bool]
    ) -> None:
        total = sum(end - self._at[p] for p, end in self._ends.items())
        consumer, kafka = self._source.consumer, library()
        places = []
        for p in sorted(self._reading):
            start = max(self._at[p], self._source.spans[p][0])
            places.append(kafka.TopicPartition(self._source.topic, p, start))
        if places:
            with errors(self._source.what):
                consumer.assign(places)
        heard = monotonic_ms()
        while self._reading and not stopped():
            with errors(self._source.what):
                messages = consumer.consume(POLL_RECORDS, 0.5)
            if messages:
                self._take(messages)
                heard = monotonic_ms()
            elif monotonic_ms() - heard > _SILENCE_MS:
                raise StorageUnavailableError(
                    f"{self._source.what}: no message for {_SILENCE_MS // 1000} s; all messages "
                    "until then are committed; run the command again to continue"
                )
            if self._bytes >= COMMIT_BYTES:
                self._commit()
            if progress is not None:
                progress(total - sum(self._ends[p] - self._seen[p] for p in self._ends), total)
        self._done.stopped = bool(self._reading)
        self._commit()

    def _take(self, messages: list[Any]) -> None:
        by_partition: dict[int, list[Any]] = {}
        for message in messages:
            error = message.error()
            p = message.partition()
            if error is None:
                if p in self._reading and message.offset() < self._ends[p]:
                    by_partition.setdefault(p, []).append(message)
                elif p in self._reading:
                    self._finish(p, self._ends[p])  # later records aren't copied now
            elif error.name() == "_PARTITION_EOF":
                # With read_committed Kafka reports the end of the partition at the first open
                # transaction. The copy ends there, and the next import continues.
                self._add(by_partition)
                by_partition = {}
                if p in self._reading:
                    self._finish(p, min(self._ends[p], max(message.offset(), self._seen[p])))
            else:
                self._add(by_partition)
                raise translated(error, self._source.what)
        self._add(by_partition)

    def _add(self, by_partition: dict[int, list[Any]]) -> None:
        for p, found in by_partition.items():
            rows = _rows(found, f"{self._source.what}, partition {p}")
            self._held.setdefault(p, []).append(rows)
            self._bytes += rows.nbytes + _RECORD_BYTES * rows.num_rows
            self._seen[p] = found[-1].offset() + 1
            if self._seen[p] >= self._ends[p]:
                self._finish(p, self._ends[p])

    def _finish(self, p: int, end: int) -> None:
        self._ends[p] = self._seen[p] = end
        self._reading.discard(p)

    def _commit(self) -> None:
        # Also partitions without messages: their end may move over compacted records and markers.
        runs = {
            p: Run(at, self._seen[p], self._held.get(p, []))
            for p, at in self._at.items()
            if self._seen[p] > at
        }
        self._held, self._bytes = {}, 0
        if not runs:
            return
        commit_runs(
            self._log, self._done.topic, runs, writer=self._source.writer, framing=self._framing,
            source={"kafka": self._source.topic},
        )  # fmt: skip
        self._done.commits += 1
        for p, run in runs.items():
            self._done.records += sum(rows.num_rows for rows in run.rows)
            self._at[p] = run.end
            self._done.offsets[p] = (self._first[p], run.end)


def _rows(messages: list[Any], what: str) -> pa.RecordBatch:
    """Return messages of a partition as columns."""
    try:
        headers = [message.headers() for message in messages]
    except UnicodeDecodeError:
        raise InvalidRequestError(
            f"{what}: a header key near offset {messages[0].offset()} is not UTF-8"
        ) from None
    stamps = pa.array([message.timestamp()[1] for message in messages], pa.int64())
    columns: dict[str, Any] = {
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "timestamp": stamps.cast(_MS),
        "offset": pa.array([message.offset() for message in messages], pa.int64()),
    }
    if any(headers):
        columns["headers"] = pa.array([_headers(one) for one in headers], HEADERS_TYPE)
    return pa.RecordBatch.from_pydict(columns)


def _headers(given: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in given or ()]


__all__ = ["Imported", "KafkaSource", "import_topic"]
