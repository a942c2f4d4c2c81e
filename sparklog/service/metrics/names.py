"""The metrics of a log's endpoint, except those that other packages define.

Kafka's metrics have the names that the JMX exporter makes of the MBeans by its usual rules, in
lower case; labels keep Kafka's spelling. Own metrics have the prefix sparklog_ and end with their
unit.
"""

from typing import Final

from sparklog.logdir import meters as writing
from sparklog.metrics import BYTES, SECONDS, Kind, Metric
from sparklog.tiered.reading import meters as fetching
from sparklog.tiered.reading.meters import topic_counter

_PARTITION: Final = ("topic", "partition")
_DIRECTORY: Final = ("logDirectory",)


def _of_log(name: str, text: str) -> Metric:
    return Metric(
        f"kafka_log_log_{name.lower()}",
        Kind.GAUGE,
        text,
        _PARTITION,
        kafka=f"kafka.log:type=Log,name={name}",
        process=False,
    )


def _of_tier(name: str, text: str) -> Metric:
    return Metric(
        f"kafka_server_brokertopicmetrics_{name.lower()}",
        Kind.GAUGE,
        text,
        ("topic",),
        kafka=f"kafka.server:type=BrokerTopicMetrics,name={name}",
        process=False,
    )


def _own(
    name: str,
    kind: Kind,
    text: str,
    labels: tuple[str, ...] = (),
    *,
    buckets: tuple[float, ...] = (),
) -> Metric:
    return Metric(f"sparklog_{name}", kind, text, labels, process=False, buckets=buckets)


# --- read from the log's files: cover all writers, readers and services -------------------------

SIZE: Final = _of_log("Size", "Bytes of a partition's local segments.")
SEGMENTS: Final = _of_log("NumLogSegments", "A partition's local segments.")
LOG_START: Final = _of_log("LogStartOffset", "First offset that a partition holds.")
LOG_END: Final = _of_log("LogEndOffset", "Offset after the last committed record of a partition.")
DIRECTORY_OFFLINE: Final = Metric(
    "kafka_log_logmanager_logdirectoryoffline",
    Kind.GAUGE,
    "1 if the log dir can't be read, or a write there failed: the last one of this process, of a "
    "session of any process on this host, or the service's last trial write.",
    _DIRECTORY,
    kafka="kafka.log:type=LogManager,name=LogDirectoryOffline",
    process=False,
)
DIRECTORIES_OFFLINE: Final = Metric(
    "kafka_log_logmanager_offlinelogdirectorycount",
    Kind.GAUGE,
    "Log dirs that are offline.",
    kafka="kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    process=False,
)
DISK_FREE: Final = _own("disk_free_bytes", Kind.GAUGE, "Free room on a log dir's disk.", _DIRECTORY)
PARTITIONS_OFFLINE: Final = _own(
    "offline_partitions", Kind.GAUGE, "Partitions that recovery found damaged and left alone."
)
PARTITION_OFFLINE: Final = _own(
    "partition_offline", Kind.GAUGE, "1 for each partition that is offline.", _PARTITION
)
RETENTION_DUE: Final = _own(
    "retention_due_bytes",
    Kind.GAUGE,
    "Bytes of local segments that a topic's retention should have deleted by now.",
    ("topic",),
)
AWAITING_DELETION: Final = _own(
    "awaiting_deletion_bytes",
    Kind.GAUGE,
    "Bytes that nobody reads any more, and that wait for file.delete.delay.ms. kind: topic (a "
    "deleted one, which can be given back until then) or segment (which retention, compaction or "
    "merges took away); storage: local (log dirs, or the store that is the log's home) or remote.",
    ("topic", "kind", "storage"),
)
COMMITS: Final = _own(
    "commits_total",
    Kind.COUNTER,
    "Commits that the ledger gained while this endpoint looked, of all writers; kind: commit (a "
    "micro-batch) or append.",
    ("kind",),
)
COMMIT_RECORDS: Final = _own(
    "commit_records_total", Kind.COUNTER, "Records in those commits.", ("topic",)
)
COMMIT_BYTES: Final = _own(
    "commit_size_bytes", Kind.HISTOGRAM, "Bytes of record batches of each of those commits.",
    buckets=BYTES,
)  # fmt: skip
COMMIT_SECONDS: Final = _own(
    "commit_duration_seconds",
    Kind.HISTOGRAM,
    "Time of each of those commits, from asking for the write lock to its ledger record.",
    buckets=SECONDS,
)
_CODEC: Final = ("topic", "codec")
BATCH_RECORDS_AVG: Final = _own(
    "batch_records_avg",
    Kind.GAUGE,
    "Records a batch, of a topic's newest batches (256 KiB of each of up to four partitions).",
    _CODEC,
)
BATCH_RECORDS: Final = _own(
    "batch_records", Kind.GAUGE, "Quantiles of the same: 0.5 and 0.99.", (*_CODEC, "quantile")
)
BATCH_BYTES_AVG: Final = _own(
    "batch_size_avg_bytes",
    Kind.GAUGE,
    "Bytes of those batches, headers included, as they lie in the log (of one client's sends "
    "Kafka's producer tells batch-size-avg).",
    _CODEC,
)
BATCH_BYTES: Final = _own(
    "batch_size_bytes", Kind.GAUGE, "Quantiles of the same: 0.5 and 0.99.", (*_CODEC, "quantile")
)
BATCH_RATE: Final = _own(
    "batch_compression_rate_avg",
    Kind.GAUGE,
    "Compressed bytes of records by their bytes in plain, of some of those batches: 1 saves "
    "nothing (compression-rate-avg of Kafka's producer).",
    _CODEC,
)
LAST_COMMIT: Final = _own(
    "last_commit_timestamp_seconds", Kind.GAUGE, "When the log was last committed to."
)
WRITER_BATCH: Final = _own(
    "writer_last_batch", Kind.GAUGE, "Number of a writer's last micro-batch.", ("writer",)
)
WRITER_TIME: Final = _own(
    "writer_last_commit_timestamp_seconds",
    Kind.GAUGE,
    "When a writer's last micro-batch was committed.",
    ("writer",),
)
_READER: Final = ("group", "kind", "topic", "partition")
READER_LAG: Final = _own(
    "reader_lag_records",
    Kind.GAUGE,
    "Offsets that a registered reader (kind: query or group) is behind the end of a partition.",
    _READER,
)
READER_OFFSET: Final = _own(
    "reader_offset", Kind.GAUGE, "Next offset that a registered reader wants.", _READER
)
READER_TIME: Final = _own(
    "reader_last_commit_timestamp_seconds",
    Kind.GAUGE,
    "When a registered reader last committed an offset.",
    ("group", "kind"),
)
READERS_DAMAGED: Final = _own(
    "damaged_readers", Kind.GAUGE, "Readers' files that can't be read; they hold retention back."
)
REMOTE_SIZE: Final = _of_tier("RemoteLogSizeBytes", "Bytes of log in a topic's remote copies.")
COPY_LAG_BYTES: Final = _of_tier(
    "RemoteCopyLagBytes", "Bytes of a topic's closed segments that have no remote copy yet."
)
COPY_LAG_SEGMENTS: Final = _of_tier(
    "RemoteCopyLagSegments", "A topic's closed segments that have no remote copy yet."
)
DELETE_LAG_BYTES: Final = _of_tier(
    "RemoteDeleteLagBytes", "Bytes of a topic's remote copies that should be gone by now."
)
DELETE_LAG_SEGMENTS: Final = _of_tier(
    "RemoteDeleteLagSegments", "A topic's remote copies that should be gone by now."
)
COPY_LAG_SECONDS: Final = _own(
    "remote_copy_lag_seconds",
    Kind.GAUGE,
    "Age of the newest record in a topic's oldest closed segment without a remote copy.",
    ("topic",),
)
MERGE_LAG_PIECES: Final = _own(
    "merge_lag_pieces", Kind.GAUGE, "Pieces of a partition in a store that are no segment yet.",
    _PARTITION,
)  # fmt: skip
MERGE_LAG_BYTES: Final = _own(
    "merge_lag_bytes", Kind.GAUGE, "Bytes of log in a topic's such pieces.", ("topic",)
)
MERGE_LAG_SECONDS: Final = _own(
    "merge_lag_seconds", Kind.GAUGE, "Age of the oldest of those pieces.", ("topic",)
)
TERM: Final = _own(
    "service_term", Kind.GAUGE, "Services that have taken a log in a store, one after another."
)
HOLDER: Final = _own(
    "service_taken_timestamp_seconds",
    Kind.GAUGE,
    "When the last service took a log in a store, and where that service runs.",
    ("host", "pid"),
)
SCRAPE_SECONDS: Final = _own(
    "scrape_duration_seconds", Kind.GAUGE, "Time that reading the log's files for this took."
)
SCRAPE_ERRORS: Final = _own(
    "scrape_errors", Kind.GAUGE, "Things that this scrape could not read; they are in the log."
)
HEALTH: Final = _own(
    "health",
    Kind.GAUGE,
    "What `sparklog status` says, by check: 0 green, 1 amber, 2 red.",
    ("check",),
)
INFO: Final = _own("info", Kind.GAUGE, "Always 1; which log this is.", ("path",))

# --- counted by the service in this process -----------------------------------------------------


def _work(
    name: str, kind: Kind, text: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = ()
) -> Metric:
    return Metric(f"sparklog_service_{name}", kind, text, labels, buckets=buckets)


def _cleaner(mbean: str, name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(
        f"kafka_log_{mbean.lower()}_{name.lower().replace('-', '_')}",
        Kind.GAUGE,
        text,
        labels,
        kafka=f"kafka.log:type={mbean},name={name}",
    )


LEADING: Final = _work(
    "leading", Kind.GAUGE, "1 if this service does the log's work, 0 while it stands by."
)
DEAD_THREADS: Final = _work(
    "dead_threads", Kind.GAUGE, "Threads of the service that ended by themselves.", ("work",)
)
PROBE_FAILED: Final = _work(
    "trial_write_failed",
    Kind.GAUGE,
    "1 if the last trial write failed that the service makes in each log dir once a minute.",
    _DIRECTORY,
)
ROUNDS: Final = _work("rounds_total", Kind.COUNTER, "Rounds of each kind of work.", ("work",))
ROUND_SECONDS: Final = _work(
    "round_duration_seconds", Kind.HISTOGRAM, "Time of a round.", ("work",), SECONDS
)
ROUND_ERRORS: Final = _work(
    "round_errors_total", Kind.COUNTER, "Things that failed in rounds, which went on.", ("work",)
)
LAST_ROUND: Final = _work(
    "last_round_timestamp_seconds", Kind.GAUGE, "When a round last ended, well or not.", ("work",)
)
LAST_SUCCESS: Final = _work(
    "last_success_timestamp_seconds", Kind.GAUGE, "When a round last ended well.", ("work",)
)
LOCKED: Final = _work(
    "lock_held_seconds", Kind.HISTOGRAM, "Time of one step under the write lock.", (), SECONDS
)
DELETED_BYTES: Final = _work(
    "deleted_bytes_total", Kind.COUNTER, "Bytes that retention deleted, by its rule.", ("rule",)
)
DELETED_SEGMENTS: Final = _work(
    "deleted_segments_total", Kind.COUNTER, "Segments that retention deleted.", ("rule",)
)
HELD_BACK: Final = _work(
    "retention_held_back_bytes",
    Kind.GAUGE,
    "Bytes that only a registered reader kept from being deleted in the last round.",
)
MERGED_BYTES: Final = _work(
    "merged_bytes_total", Kind.COUNTER, "Bytes of pieces that became segments.", ("topic",)
)
SWEPT_OBJECTS: Final = _work(
    "swept_objects_total", Kind.COUNTER, "Objects that were removed from the store.", ("kind",)
)
SWEPT_BYTES: Final = _work("swept_bytes_total", Kind.COUNTER, "Their bytes.", ("kind",))
MANIFESTS_MADE: Final = _work(
    "manifests_made_total", Kind.COUNTER, "Manifests that a service before had not come to put."
)
CLEANED_READ: Final = _work(
    "cleaned_bytes_total", Kind.COUNTER, "Bytes of segments that the cleaner rewrote."
)
CLEANED_WRITTEN: Final = _work(
    "cleaner_written_bytes_total", Kind.COUNTER, "Bytes that the cleaner wrote in their place."
)
DEAD_CLEANERS: Final = _cleaner("LogCleaner", "DeadThreadCount", "Cleaner threads that died.")
BUFFER_USED: Final = _cleaner(
    "LogCleaner", "max-buffer-utilization-percent", "Use of the offset map in the last cleanings."
)
RECOPY: Final = _cleaner(
    "LogCleaner", "cleaner-recopy-percent", "Bytes written by bytes read, in the last cleanings."
)
CLEAN_SECONDS: Final = _cleaner(
    "LogCleaner", "max-clean-time-secs", "Time of the longest of the last cleanings."
)
COMPACTION_DELAY: Final = _cleaner(
    "LogCleaner",
    "max-compaction-delay-secs",
    "How long the most overdue partition has been past its max.compaction.lag.ms.",
)
MAX_DIRTY: Final = _cleaner(
    "LogCleanerManager", "max-dirty-percent", "Dirty share of the dirtiest compacted partition."
)
SINCE_CLEAN: Final = _cleaner(
    "LogCleanerManager", "time-since-last-run-ms", "Time since the cleaner last looked."
)
UNCLEANABLE: Final = _cleaner(
    "LogCleanerManager",
    "uncleanable-partitions-count",
    "Partitions that the cleaner leaves alone after an error, until the service starts again.",
    _DIRECTORY,
)
UNCLEANABLE_BYTES: Final = _cleaner(
    "LogCleanerManager",
    "uncleanable-bytes",
    "Bytes of those partitions.",
    _DIRECTORY,
)
COPY_BYTES: Final = topic_counter("RemoteCopyBytes", "Bytes of log copied to remote storage.")
COPY_REQUESTS: Final = topic_counter("RemoteCopyRequests", "Segments copied to remote storage.")
DELETE_REQUESTS: Final = topic_counter("RemoteDeleteRequests", "Copies deleted there.")
REMOTE_ERRORS: Final = _work(
    "remote_errors_total", Kind.COUNTER, "Rounds of copying and deleting that a failure ended."
)

_HERE: Final = tuple(metric for metric in list(globals().values()) if isinstance(metric, Metric))
METRICS: Final[dict[str, Metric]] = {
    metric.name: metric for metric in (*_HERE, *writing.METRICS, *fetching.METRICS)
}
"""All metrics of a log and its service by name; sparklog.sink.progress has those of queries."""


def metrics_markdown(metrics: tuple[Metric, ...] | None = None) -> str:
    """Return the table in docs/metrics.md."""
    lines = ["| metric | type | labels | of | |", "|--|--|--|--|--|"]
    for metric in metrics or METRICS.values():
        of = "this process" if metric.process else "the log"
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {of} | {metric.help} |")
    return "\n".join(lines) + "\n"
