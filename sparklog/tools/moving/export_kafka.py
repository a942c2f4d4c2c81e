"""Exports a range of a topic to a running Kafka cluster, each record exactly once.

A broker assigns offsets itself, so the export can't preserve a record's offset. It preserves the
partition, order, timestamp, key and headers. Each transaction contains records and, as the
committed offset of a consumer group, the log offset after them. So a repeated export continues
after the last transaction, and read_committed consumers see each record once. (KIP-98, KIP-447)
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.log.log import Log, view_of
from sparklog.progress import Progress, shows_progress
from sparklog.tools.moving.exporting import Exported, Meter, Offsets, TopicRange
from sparklog.tools.moving.kafka_client import (
    TIMEOUT_S,
    client,
    errors,
    import_writer,
    library,
    metadata,
)

TRANSACTION_RECORDS: Final = 50_000  # records, about


@shows_progress("exporting")
def export_kafka(
    records: TopicRange,
    bootstrap_servers: str,
    *,
    kafka_topic: str | None = None,
    config: Mapping[str, object] | None = None,
    create: bool = False,
    progress: Progress | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Exported:
    """Produce the records of a range to the topic `kafka_topic` of a Kafka cluster.

    The progress is stored in Kafka as group `sparklog-export-TOPICID`, and expires after
    offsets.retention.minutes.

    Args:
        records: The range.
        bootstrap_servers: The brokers.
        kafka_topic: The name of the Kafka topic. By default the name of the log's topic.
        config: Settings of librdkafka.
        create: Create a missing topic, with as many partitions, and the retention.ms that is set on
            the log's topic. If none is set, retention.ms is -1: a broker's default may delete old
            records at once.
        progress: Called with the number of offsets done, and the total.
        stopped: If this function returns True, the export ends after the current transaction.

    Raises:
        UnknownTopicError: A topic does not exist.
        InvalidRequestError: The topic has too few partitions, a setting is invalid, or the records
            were imported from this very topic.
        OffsetOutOfRangeError: Records were deleted before they were exported.
        StorageUnavailableError: The broker does not answer.

    Cost:
        A call of confluent-kafka per record.
    """
    began, log, topic = monotonic_ms(), records.log, records.topic
    name = kafka_topic or topic
    done = Exported(topic=topic, to=f"{bootstrap_servers}/{name}")
    first, last = records.offsets()
    # The topic id, not the name: a topic that was deleted and created again starts a new export.
    group = f"sparklog-export-{view_of(log).topic_id(topic, min(first))}"
    target = Target(bootstrap_servers, name, group, dict(config or {}))
    try:
        kept = log.topic(topic).config.to_dict().get("retention.ms", "-1") if create else None
        origin = target.check(max(first) + 1, topic, retention_ms=kept)
        # An import of the topic and an export back would append each record to its own source.
        if origin is not None and _came_from(log, topic, origin):
            raise InvalidRequestError(
                f"topic {topic} was imported from {done.to}: an export would append each record "
                "to that topic a second time; choose another topic"
            )
        at = records.resume(first, last, target.begin(sorted(first)), done.to)
        meter = Meter(at, last, progress)
        reached = dict(at)
        for p, part in _parts(records, at, last):
            if stopped():
                done.stopped = True
                break
            upto = part.column("offset")[part.num_rows - 1].as_py() + 1
            target.send(p, part, upto)
            done.records += part.num_rows
            done.offsets[p] = (at[p], upto)
            meter.add(upto - reached[p])
            reached[p] = upto
    finally:
        target.close()
    done.took_ms = int(monotonic_ms() - began)
    return done


def _came_from(log: Log, topic: str, writer: str) -> bool:
    """Return True if the ledger contains commits of `writer`, an import of a Kafka topic."""
    try:
        return topic in log.commits(writer)["topic"].to_pylist()
    except UnknownTopicError:  # of an archive or of a broker, without a ledger
        return False


def _parts(
    records: TopicRange, first: Offsets, last: Offsets
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (partition, rows) of each transaction to produce."""
    for p, at in first.items():
        for rows in records.read(p, at, last[p]):
            for cut in range(0, rows.num_rows, TRANSACTION_RECORDS):
                yield p, rows.slice(cut, TRANSACTION_RECORDS)


class Target:
    """A transactional producer, and the consumer group that stores the progress of the export."""

    def __init__(self, servers: str, topic: str, group: str, config: dict[str, object]) -> None:
        kafka = library()
        self._kafka, self._servers, self._topic, self._config = kafka, servers, topic, config
        self.what = f"topic {topic} at {servers}"
        settings = {"linger.ms": 20, **config, "transactional.id": f"{group}-{topic}"}
        self._producer = client(kafka.Producer, servers, settings)
        self._group = client(
            kafka.Consumer, servers, {**config, "group.id": group, "enable.auto.commit": False}
        )
        self._failed: list[Any] = []

    def check(self, partitions: int, source: str, *, retention_ms: str | None) -> str | None:
        """Check that the Kafka topic exists and has at least `partitions` partitions.

        A missing Kafka topic is created with retention.ms `retention_ms`. The result is the name of
        the writer under which an import would commit records of the Kafka topic to the log's topic
        `source`, or None if the Kafka topic was created.

        Raises:
            UnknownTopicError: The topic is missing, and `retention_ms` is None.
            InvalidRequestError: The topic has too few partitions.
        """
        try:
            cluster, held = metadata(self._group, self._topic, self._servers)
        except UnknownTopicError as error:
            if retention_ms is None:
                raise UnknownTopicError(
                    f"{error}; create the topic in Kafka with {partitions} partitions, or use "
                    "--create"
                ) from None
            self._create(partitions, retention_ms)
            return None
        if len(held) < partitions:
            raise InvalidRequestError(
                f"{self.what} has {len(held)} partitions, but {partitions} are needed: add some, "
                "or export to another topic"
            )
        return import_writer(self._admin(), cluster, self._topic, source, self.what)

    def _admin(self) -> Any:
        return client(self._kafka.admin.AdminClient, self._servers, self._config)

    def _create(self, partitions: int, retention_ms: str) -> None:
        admin = self._admin()
        config = {"retention.ms": retention_ms}
        wanted = self._kafka.admin.NewTopic(self._topic, partitions, -1, config=config)
        with errors(f"{self.what}: creating the topic"):
            admin.create_topics([wanted])[self._topic].result(TIMEOUT_S)

    def begin(self, partitions: list[int]) -> dict[int, int]:
        """End an open transaction of an earlier export; return the offsets to continue at."""
        with errors(self.what):
            # First: it fences an earlier export that is still running, and aborts its open
            # transaction. Before that the group's committed offset could still change.
            self._producer.init_transactions(TIMEOUT_S)
            places = [self._kafka.TopicPartition(self._topic, p) for p in partitions]
            found = self._group.committed(places, TIMEOUT_S)
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def send(self, p: int, rows: Any, upto: int) -> None:
        """Produce rows, and commit the offset `upto` after the last row, in one transaction."""
        with errors(self.what):
            self._producer.begin_transaction()
            try:
                self._produce(p, rows)
                place = self._kafka.TopicPartition(self._topic, p, upto)
                # Part of the transaction: the records and the offset after them become visible
                # together, so a failure in between neither loses nor repeats records.
                about = self._group.consumer_group_metadata()
                self._producer.send_offsets_to_transaction([place], about, TIMEOUT_S)
                self._producer.commit_transaction(TIMEOUT_S)
            except BaseException:
                self._producer.abort_transaction(TIMEOUT_S)
                raise

    def _produce(self, p: int, rows: Any) -> None:
        keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
        micros = rows.column("timestamp").cast("int64").to_numpy(zero_copy_only=False)
        stamps = (micros // 1000).tolist()
        headers = rows.column("headers").to_pylist()
        for key, value, stamp, given in zip(keys, values, stamps, headers, strict=True):
            pairs = [(h["key"], h["value"]) for h in given or ()]
            more: dict[str, Any] = {"headers": pairs} if pairs else {}
            if stamp > 0:  # librdkafka takes 0 to mean the current time
                more["timestamp"] = stamp
            while True:
                try:
                    self._producer.produce(
                        self._topic, value=value, key=key, partition=p,
                        on_delivery=self._delivered, **more,
                    )  # fmt: skip
                    break
                except BufferError:  # the producer's queue is full
                    self._producer.poll(0.1)
            self._producer.poll(0)
        # Before the commit, so that a failed delivery is raised with the record's own error.
        self._producer.flush(TIMEOUT_S)
        if self._failed:
            raise self._kafka.KafkaException(self._failed[0])

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def close(self) -> None:
        self._group.close()
