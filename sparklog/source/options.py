"""All options of the source, with names, meanings and defaults of Spark's Kafka source.

`SourceOptions` has the supported options. `REFUSED` explains for each unsupported option why it has
no meaning and what to do instead. The table in docs/options.md is generated from both. Source:
KafkaSourceProvider (spark-sql-kafka-0-10), which makes the same checks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.configdef import (
    SPARKS_OWN,
    Key,
    Mode,
    SparkOptions,
    keys_of,
    option,
    parse_duration_ms,
    parse_json_object,
    read,
)
from sparklog.errors import InvalidRequestError
from sparklog.log.timeline import TIMELINES
from sparklog.opening import resolved
from sparklog.source.jvm_caller import JvmCaller
from sparklog.source.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    parse_assign,
    parse_bound,
    parse_offsets,
)
from sparklog.source.patterns import compile_pattern
from sparklog.storage.groups import check_group
from sparklog.tiered.reading.options import REMOTE_KEYS, RemoteOptions

ARCHIVE_SPLIT_BYTES: Final = 128 << 20  # spark.sql.files.maxPartitionBytes
_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options as given. Values that can only be interpreted with the log are stored as text."""

    path: str | None = option(
        "path",
        None,
        kind=str,
        required=True,
        doc="The log dir, several log dirs separated by commas, or the URL of a log in a bucket or "
        "of an archive.",
    )
    assign: str | None = option(
        "assign", None, kind=str, doc='Partitions to read: `{"topicA":[0,1]}`.'
    )
    subscribe: str | None = option(
        "subscribe", None, kind=str, doc="Topics to read, separated by commas."
    )
    subscribe_pattern: str | None = option(
        "subscribePattern",
        None,
        kind=str,
        doc="Regular expression for whole topic names, in Java's syntax; unsupported constructs "
        "are rejected. A running query also reads new topics.",
    )
    wait_for_topics: bool = option(
        "waitForTopics",
        False,
        mode=Mode.STREAM,
        doc="Streaming only, option of sparklog: start the query although the log, a topic of "
        "`subscribe`, a partition of `assign`, or any topic of `subscribePattern` does not exist "
        "yet. The query waits until they exist, and then begins at startingOffsets or a starting "
        "timestamp, one of which is required. Partitions without a record at or after the "
        "timestamp begin at their end.",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        None,
        kind=int,
        long=True,
        doc="Start (ms) of all partitions; takes precedence over startingOffsetsByTimestamp.",
    )
    starting_offsets_by_timestamp: str | None = option(
        "startingOffsetsByTimestamp",
        None,
        kind=str,
        doc='Start by time (ms): `{"topicA":{"0":1000}}`; takes precedence over startingOffsets.',
    )
    starting_offsets: str | None = option(
        "startingOffsets",
        None,
        kind=str,
        doc="earliest, latest (streaming only) or JSON, -2 earliest, -1 latest. Default: latest "
        "for streaming, earliest for batch. Partitions added later start at earliest.",
    )
    strategy: str = option(
        "startingOffsetsByTimestampStrategy",
        "error",
        choices=("error", "latest"),
        any_case=True,
        doc="What to do if no record is at or after the timestamp: fail, or start at the end.",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        None,
        mode=Mode.BATCH,
        kind=int,
        long=True,
        doc="Batch only: end (ms) of all partitions; takes precedence over "
        "endingOffsetsByTimestamp.",
    )
    ending_offsets_by_timestamp: str | None = option(
        "endingOffsetsByTimestamp",
        None,
        mode=Mode.BATCH,
        kind=str,
        doc="Batch only: end by time (ms); takes precedence over endingOffsets.",
    )
    ending_offsets: str | None = option(
        "endingOffsets",
        None,
        kind=str,
        mode=Mode.BATCH,
        doc="Batch only: latest (default) or JSON, -1 latest.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        doc="Fail if records were deleted, a topic was re-created, or the log was restored to an "
        "earlier state than was read; false: warn with the exact range and continue behind it, at "
        "the start of the new topic, or where the histories diverge.",
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        None,
        mode=Mode.STREAM,
        kind=int,
        low=1,
        long=True,
        doc="Streaming only: maximum number of records per micro-batch, shared out by the "
        "partitions' backlog.",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        None,
        mode=Mode.STREAM,
        kind=int,
        low=1,
        long=True,
        doc="Streaming only: wait for this number of records, at most for maxTriggerDelay.",
    )
    max_trigger_delay: str = option(
        "maxTriggerDelay",
        "15m",
        mode=Mode.STREAM,
        doc="Streaming only: longest wait for minOffsetsPerTrigger, e.g. 30s, 15m.",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        None,
        mode=Mode.STREAM,
        kind=int,
        low=1,
        long=True,
        doc="Streaming only, option of sparklog: maximum bytes of log per micro-batch, as precise "
        "as index entries.",
    )
    min_partitions: int | None = option(
        "minPartitions",
        None,
        kind=int,
        low=1,
        doc="Split partitions until there are about this number of tasks, rounded as in Spark. If "
        "there are more than 32 ranges, small ones share tasks (up to 10,000 records).",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", None, kind=int, low=1, long=True,
        doc="Maximum number of records per task.",
    )
    max_bytes_per_partition: int | None = option(
        "maxBytesPerPartition",
        None,
        kind=int,
        low=1,
        long=True,
        doc="Option of sparklog: maximum bytes of log per task, as precise as index entries "
        "(remote segments are split evenly). Default for an archive: 128 MiB.",
    )
    include_headers: bool = option(
        "includeHeaders", False, doc="Add the column headers (empty arrays, never null)."
    )
    isolation_level: str = option(
        "kafka.isolation.level",
        "read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        doc="read_committed hides open and aborted transactions in logs that brokers wrote.",
    )
    timeline: str = option(
        "timeline",
        "all",
        choices=TIMELINES,
        doc="Option of sparklog. current leaves out the rows of micro-batches that a reset of "
        "their query abandoned. Rows that a stream read before the reset are not taken back.",
    )
    group_id: str | None = option(
        "kafka.group.id",
        None,
        kind=str,
        doc="Streaming only: name under which the query registers its position (`Log.readers`), "
        "instead of its id. Each query needs its own name. A broker's directory stores no "
        "readers.",
    )
    group_id_prefix: str = option(
        "groupIdPrefix",
        "",
        doc="Streaming only: prefix of that name, before a dash and the query's id.",
    )
    until: str = option(
        "until",
        "high-watermark",
        choices=("high-watermark", "log-end"),
        doc="Option of sparklog for a broker's directory without a current high watermark: log-end "
        "reads all complete batches.",
    )
    pushdown: bool = option(
        "pushdown",
        False,
        mode=Mode.BATCH,
        doc="Batch only, option of sparklog: push down filters on offset, partition, topic and "
        "timestamp; needs spark.sql.python.filterPushdown.enabled=true.",
    )

    storage_options: str | None = option(
        "storageOptions",
        None,
        kind=str,
        also=["storage_options"],
        secret=True,
        doc="Option of sparklog: JSON with fsspec's options for a store, such as endpoint_url. "
        "Pass credentials by the environment of driver and executors instead, because query plans "
        "may show options.",
    )
    jvm: bool = option(
        "jvm",
        True,
        doc="Option of sparklog: read local files in Spark's JVM, if sparklog's jar is loaded; "
        "false: in Python. The rows are the same. The session's conf "
        "spark.datasource.sparklog.jvm changes the default.",
    )
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    caller: JvmCaller = field(default_factory=JvmCaller)
    streaming: bool = False  # `spark.readStream`
    typed_path: str = ""  # for messages

    @property
    def split_bytes(self) -> int | None:
        """Maximum bytes of log per task, if limited."""
        if self.max_bytes_per_partition is None and "://" in (self.path or ""):
            return ARCHIVE_SPLIT_BYTES
        return self.max_bytes_per_partition

    @property
    def storage(self) -> dict[str, Any]:
        """The option storageOptions as a dict.

        Raises:
            InvalidRequestError: The option is not a JSON object.
        """
        return parse_json_object(self.storage_options or "{}", name="storageOptions")

    @property
    def max_trigger_delay_ms(self) -> int:
        """maxTriggerDelay in ms."""
        return parse_duration_ms(self.max_trigger_delay, name="maxTriggerDelay")

    @property
    def assigned(self) -> list[TopicPartition] | None:
        """The partitions of `assign`, or None."""
        return None if self.assign is None else parse_assign(self.assign)

    @property
    def subscribed(self) -> list[str] | None:
        """The topics of `subscribe`, or None."""
        if self.subscribe is None:
            return None
        return sorted({t.strip() for t in self.subscribe.split(",") if t.strip()})

    def group(self, query_id: str | None) -> str | None:
        """Return the name of the group under which a query registers its offsets in the log.

        The name is `kafka.group.id`, or else the query's id, after `groupIdPrefix` and a dash if
        that option is set. Returns None if `kafka.group.id` is not set and `query_id` is None.
        """
        if self.group_id is not None or query_id is None:
            return self.group_id
        return f"{self.group_id_prefix}-{query_id}" if self.group_id_prefix else query_id

    def start(self, *, streaming: bool) -> Bound:
        """Return the start of a new query, with the precedence of Spark's Kafka source."""
        if self.starting_timestamp is not None:
            return Bound("time", self.starting_timestamp)
        if self.starting_offsets_by_timestamp is not None:
            key = "startingOffsetsByTimestamp"
            text = self.starting_offsets_by_timestamp
            return Bound("times", values=parse_offsets(text, option=key))
        if self.starting_offsets is None:
            return Bound("offset", LATEST if streaming else EARLIEST)
        return parse_bound(self.starting_offsets, option="startingOffsets")

    def end(self) -> Bound:
        """Return the end of a batch query, with the precedence of Spark's Kafka source."""
        if self.ending_timestamp is not None:
            return Bound("time", self.ending_timestamp)
        if self.ending_offsets_by_timestamp is not None:
            key = "endingOffsetsByTimestamp"
            return Bound(
                "times", values=parse_offsets(self.ending_offsets_by_timestamp, option=key)
            )
        return parse_bound(self.ending_offsets or "latest", option="endingOffsets")


OPTIONS: Final[dict[str, Key]] = keys_of(SourceOptions) | REMOTE_KEYS
"""Option -> description, in the order of the docs."""

_NO_BROKER: Final = "there is no broker to talk to; leave it out"
_NEVER_CHANGED: Final = "records aren't changed or deleted behind a reader; leave it out"
REFUSED: Final[dict[str, str]] = {
    "kafka.bootstrap.servers": "sparklog reads a log directory; use option path instead",
    "kafkaConsumer.pollTimeoutMs": _NO_BROKER,
    "fetchOffset.numRetries": _NO_BROKER,
    "fetchOffset.retryIntervalMs": _NO_BROKER,
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "key is always binary; cast it in the query",
    "kafka.value.deserializer": "value is always binary; cast it in the query",
    "kafka.enable.auto.commit": "the query's checkpoint keeps the offsets; leave it out",
    "kafka.interceptor.classes": "there is no consumer to intercept; leave it out",
    "kafka.max.poll.records": "use maxRecordsPerPartition or maxOffsetsPerTrigger",
    "kafka.partition.assignment.strategy": "use assign, subscribe or subscribePattern",
    "startingVersion": "records are counted, not commits; use startingOffsets or startingTimestamp",
    "endingVersion": "records are counted, not commits; use endingOffsets or endingTimestamp",
    "versionAsOf": "records are counted, not commits; use endingOffsets or endingTimestamp",
    "timestampAsOf": "use endingTimestamp, which goes by the records' own time",
    "maxFilesPerTrigger": "use maxOffsetsPerTrigger or maxBytesPerTrigger",
    "ignoreDeletes": _NEVER_CHANGED,
    "ignoreChanges": _NEVER_CHANGED,
    "skipChangeCommits": _NEVER_CHANGED,
    "readChangeFeed": "a topic contains events in order; leave it out",
}
"""Options of the Kafka source and of Delta without a meaning here, and what to do instead."""

_SPARK: Final = SparkOptions(
    keys=OPTIONS,
    synonyms=["storage_options"],
    refused=REFUSED,
    ignored=SPARKS_OWN | {"checkpointlocation"},
    unknown=f"unknown option {{name}}; the source knows {', '.join(OPTIONS)}",
    kafka=f"option {{name}} has no meaning for sparklog: {_NO_BROKER}",
    stream_only="; a batch query reads its whole range at once: leave it out, or bound the range "
    "by endingOffsets or endingTimestamp",  # the connector leaves them out with a warning
)


def parse(values: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse and check the options of `spark.read` or `spark.readStream`; names in any case.

    Raises:
        InvalidRequestError: An option is unknown, invalid, or has no meaning here. The message
            names the option.
    """
    caller, values = JvmCaller.parse(values)
    given = _SPARK.given(values)
    remote, rest = RemoteOptions.parse(given)
    fields, _ = read(keys_of(SourceOptions).values(), rest)
    options = SourceOptions(**fields, remote=remote, caller=caller, streaming=streaming)
    _check(options, given, streaming=streaming)
    path = options.path or ""
    # Tasks have other working directories, so they get an absolute path.
    return replace(options, path=resolved(path), typed_path=path)


def _check(options: SourceOptions, given: Mapping[str, Any], *, streaming: bool) -> None:
    if not options.path:
        raise InvalidRequestError("option path is missing: set it to the log's directory or URL")
    chosen = [key for key in _SELECTIONS if key in given]
    if len(chosen) != 1:
        raise InvalidRequestError(
            f"the options select topics {len(chosen)} times: set exactly one of "
            f"{', '.join(_SELECTIONS)}"
        )
    if options.assigned == [] or options.subscribed == []:
        raise InvalidRequestError(f"option {chosen[0]} is empty: name at least one topic")
    if options.subscribe_pattern is not None:
        compile_pattern(options.subscribe_pattern)
    options.storage  # noqa: B018 - raises
    check_group(options.group("00000000-0000-0000-0000-000000000000") or "")
    if options.max_trigger_delay_ms < 1:
        raise InvalidRequestError(
            f"maxTriggerDelay={options.max_trigger_delay}: expected at least 1ms"
        )
    _SPARK.check_mode(given, streaming=streaming)
    if streaming:
        _check_streaming(options, given)
    else:
        _check_batch(options)


def _check_streaming(options: SourceOptions, given: Iterable[str]) -> None:
    options.start(streaming=True)
    if options.wait_for_topics and not set(_STARTS) & set(given):
        raise InvalidRequestError(
            "option waitForTopics requires a position to begin at when the topics exist: add "
            "startingOffsets=earliest to read all of their records, or startingOffsets=latest to "
            "leave out those that were written before the query saw the topics"
        )
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise InvalidRequestError(
            f"minOffsetsPerTrigger={low}: expected at most maxOffsetsPerTrigger={high}"
        )


def _check_batch(options: SourceOptions) -> None:
    start, end = options.start(streaming=False), options.end()
    latest = start.value == LATEST if start.kind == "offset" else LATEST in start.values.values()
    if start.kind in ("offset", "offsets") and latest:
        raise InvalidRequestError("startingOffsets can't be latest (-1) in a batch query")
    earliest = end.value == EARLIEST if end.kind == "offset" else EARLIEST in end.values.values()
    if end.kind in ("offset", "offsets") and earliest:
        raise InvalidRequestError("endingOffsets can't be earliest (-2)")
