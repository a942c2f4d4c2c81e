"""What each metric that Kafka documents for its brokers is here: a name, or why there is none.

DOCUMENTED holds the MBeans' names of Kafka's documentation, "Monitoring", from 4.1 on, without the
clients' own; keys besides type and name are left out. tests/service/test_kafka_metrics.py holds
the answers against them, and against what the endpoint has.
"""

from typing import Final, NamedTuple

from sparklog.kafka import network_metrics
from sparklog.service.metrics.names import METRICS

TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
REQUESTS: Final = "kafka.network:type=RequestMetrics,name="
REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
STATS: Final = "kafka.controller:type=ControllerStats,name="
EVENTS: Final = "kafka.controller:type=ControllerEventManager,name="
COORDINATOR: Final = "kafka.server:type=group-coordinator-metrics,name="
GROUPS: Final = "kafka.server:type=GroupMetadataManager,name="
TRANSACTIONS: Final = "kafka.server:type=transaction-coordinator-metrics,name="
VERIFYING: Final = "kafka.server:type=AddPartitionsToTxnManager,name="
LOG: Final = "kafka.log:type=Log,name="
MANAGER: Final = "kafka.log:type=LogManager,name="
REMOTE: Final = "kafka.log.remote:type=RemoteLogManager,name="
THROTTLED: Final = "kafka.server:type=RemoteLogManager,name="
POOL: Final = "org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool,name="
LOADER: Final = "kafka.server:type=MetadataLoader,name="
EMITTER: Final = "kafka.server:type=SnapshotEmitter,name="


def _of(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names.split())


DOCUMENTED: Final = (
    *_of(TOPICS, (
        "MessagesInPerSec BytesInPerSec ReplicationBytesInPerSec TotalProduceRequestsPerSec "
        "TotalFetchRequestsPerSec FailedProduceRequestsPerSec FailedFetchRequestsPerSec "
        "ProduceMessageConversionsPerSec FetchMessageConversionsPerSec BytesOutPerSec "
        "ReplicationBytesOutPerSec BytesRejectedPerSec NoKeyCompactedTopicRecordsPerSec "
        "InvalidMagicNumberRecordsPerSec InvalidMessageCrcRecordsPerSec "
        "InvalidOffsetOrSequenceRecordsPerSec ReassignmentBytesOutPerSec "
        "ReassignmentBytesInPerSec RemoteFetchBytesPerSec RemoteFetchRequestsPerSec "
        "RemoteFetchErrorsPerSec RemoteCopyBytesPerSec RemoteCopyRequestsPerSec "
        "RemoteCopyErrorsPerSec RemoteCopyLagBytes RemoteCopyLagSegments "
        "RemoteDeleteRequestsPerSec RemoteDeleteErrorsPerSec RemoteDeleteLagBytes "
        "RemoteDeleteLagSegments BuildRemoteLogAuxStateRequestsPerSec "
        "BuildRemoteLogAuxStateErrorsPerSec RemoteLogSizeComputationTime RemoteLogSizeBytes "
        "RemoteLogMetadataCount"
    )),
    *_of(REQUESTS, (
        "RequestsPerSec ErrorsPerSec RequestBytes TemporaryMemoryBytes MessageConversionsTimeMs "
        "TotalTimeMs RequestQueueTimeMs LocalTimeMs RemoteTimeMs ResponseQueueTimeMs "
        "ResponseSendTimeMs"
    )),
    *_of(REPLICAS, (
        "UnderReplicatedPartitions UnderMinIsrPartitionCount AtMinIsrPartitionCount "
        "ProducerIdCount PartitionCount OfflineReplicaCount LeaderCount IsrShrinksPerSec "
        "IsrExpandsPerSec FailedIsrUpdatesPerSec ReassigningPartitions"
    )),
    *_of(CONTROLLER, (
        "ActiveControllerCount TopicsToDeleteCount ReplicasToDeleteCount "
        "TopicsIneligibleToDeleteCount ReplicasIneligibleToDeleteCount FencedBrokerCount "
        "ActiveBrokerCount GlobalTopicCount GlobalPartitionCount OfflinePartitionsCount "
        "PreferredReplicaImbalanceCount MetadataErrorCount LastAppliedRecordOffset "
        "LastCommittedRecordOffset LastAppliedRecordTimestamp LastAppliedRecordLagMs "
        "TimedOutBrokerHeartbeatCount EventQueueOperationsStartedCount "
        "EventQueueOperationsTimedOutCount NewActiveControllersCount"
    )),
    *_of(STATS, (
        "LeaderElectionRateAndTimeMs UncleanLeaderElectionsPerSec "
        "ElectionFromEligibleLeaderReplicasPerSec"
    )),
    *_of(EVENTS, "EventQueueSize EventQueueTimeMs EventQueueProcessingTimeMs"),
    *_of(COORDINATOR, (
        "num-partitions partition-load-time-max partition-load-time-avg thread-idle-ratio-avg "
        "event-queue-size event-queue-time-ms event-processing-time-ms event-purgatory-time-ms "
        "batch-linger-time-ms batch-flush-time-ms batch-flush-rate group-count "
        "consumer-group-count consumer-group-rebalance-rate consumer-group-rebalance-count "
        "streams-group-count streams-group-rebalance-rate streams-group-rebalance-count "
        "group-completed-rebalance-rate group-completed-rebalance-count offset-commit-rate "
        "offset-commit-count offset-expiration-rate offset-expiration-count "
        "offset-deletion-rate offset-deletion-count"
    )),
    *_of(GROUPS, (
        "NumGroups NumGroupsPreparingRebalance NumGroupsCompletingRebalance NumGroupsEmpty "
        "NumGroupsStable NumGroupsDead NumOffsets"
    )),
    *_of(TRANSACTIONS, "partition-load-time-max partition-load-time-avg"),
    *_of(VERIFYING, "VerificationFailureRate VerificationTimeMs"),
    *_of(LOG, "Size NumLogSegments LogStartOffset LogEndOffset"),
    *_of(MANAGER, (
        "OfflineLogDirectoryCount remainingLogsToRecover remainingSegmentsToRecover "
        "LogDirectoryOffline"
    )),
    *_of(REMOTE, "RemoteLogManagerTasksAvgIdlePercent RemoteLogReaderFetchRateAndTimeMs"),
    *_of(THROTTLED, (
        "remote-fetch-throttle-time-avg remote-fetch-throttle-time-max "
        "remote-copy-throttle-time-avg remote-copy-throttle-time-max"
    )),
    *_of(POOL, "RemoteLogReaderTaskQueueSize RemoteLogReaderAvgIdlePercent"),
    *_of(LOADER, "CurrentMetadataVersion HandleLoadSnapshotCount"),
    *_of(EMITTER, "LatestSnapshotGeneratedBytes LatestSnapshotGeneratedAgeMs"),
    "kafka.controller:type=ControllerChannelManager,name=RequestRateAndQueueTimeMs",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    "kafka.network:type=RequestChannel,name=RequestQueueSize",
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
    "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
    "kafka.server:type=socket-server-metrics,name=expired-connections-killed-count",
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
    "kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
    "kafka.server:type=DelayedRemoteFetchMetrics,name=ExpiresPerSec",
    "kafka.server:type=DelayedRemoteListOffsetsMetrics,name=ExpiresPerSec",
    "kafka.server:type=Produce", "kafka.server:type=Fetch", "kafka.server:type=Request",
    "kafka.server:type=raft-metrics", "kafka.server:type=broker-metadata-metrics",
    "kafka.consumer:type=consumer-fetch-manager-metrics",
)  # fmt: skip


class Other(NamedTuple):
    """MBeans that are another metric here: an expression of Prometheus, and what differs."""

    mbeans: tuple[str, ...]
    here: str
    note: str = ""


class Absent(NamedTuple):
    """MBeans that don't apply here, and why."""

    mbeans: tuple[str, ...]
    why: str


def _errors(request: str, code: str = "") -> str:
    more = f', error="{code}"' if code else ', error!="NONE"'
    return f'rate(kafka_network_requestmetrics_errors_total{{request="{request}"{more}}}[5m])'


def _requests(request: str) -> str:
    return f'rate(kafka_network_requestmetrics_requests_total{{request="{request}"}}[5m])'


OTHERS: Final = (
    Other(_of(TOPICS, "MessagesInPerSec"), "rate(sparklog_commit_records_total[5m])",
          "by topic, of all writers, Kafka's clients or not"),
    Other(_of(TOPICS, "BytesInPerSec"), "rate(sparklog_commit_size_bytes_sum[5m])",
          "of all writers, as it lies in the log; not by topic"),
    Other(_of(TOPICS, "BytesOutPerSec"), "rate(sparklog_kafka_sent_bytes_total[5m])",
          "what Kafka's clients were sent; Spark reads the log's files itself"),
    Other(_of(TOPICS, "TotalProduceRequestsPerSec"), _requests("Produce"), "not by topic"),
    Other(_of(TOPICS, "TotalFetchRequestsPerSec"), _requests("Fetch"), "not by topic"),
    Other(_of(TOPICS, "FailedProduceRequestsPerSec"), _errors("Produce"), "by error, not by topic"),
    Other(_of(TOPICS, "FailedFetchRequestsPerSec"), _errors("Fetch"), "by error, not by topic"),
    Other(_of(TOPICS, "BytesRejectedPerSec"), _errors("Produce", "MESSAGE_TOO_LARGE"),
          "batches, not bytes; of writers in a process "
          "sparklog_process_commit_errors_total{error=\"RecordTooLargeError\"}"),
    Other(_of(TOPICS, "NoKeyCompactedTopicRecordsPerSec"), _errors("Produce", "INVALID_RECORD")),
    Other(_of(TOPICS, "InvalidMagicNumberRecordsPerSec InvalidMessageCrcRecordsPerSec"),
          _errors("Produce", "CORRUPT_MESSAGE")),
    Other(_of(TOPICS, "InvalidOffsetOrSequenceRecordsPerSec"),
          _errors("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")),
    Other(_of(TOPICS, "RemoteCopyErrorsPerSec RemoteDeleteErrorsPerSec"),
          "rate(sparklog_service_remote_errors_total[5m])", "both together"),
    Other(_of(REQUESTS, "RequestBytes"), "rate(sparklog_kafka_received_bytes_total[5m])",
          "of all requests together"),
    Other(_of(REQUESTS, "TotalTimeMs"),
          "histogram_quantile(0.99, rate(sparklog_kafka_request_duration_seconds_bucket[5m]))",
          "a histogram, in seconds"),
    Other(_of(REPLICAS, "PartitionCount") + _of(CONTROLLER, "GlobalPartitionCount"),
          "count(kafka_log_log_logendoffset)"),
    Other(_of(CONTROLLER, "GlobalTopicCount"),
          "count(count by (topic) (kafka_log_log_logendoffset))"),
    Other(_of(REPLICAS, "OfflineReplicaCount") + _of(CONTROLLER, "OfflinePartitionsCount"),
          "sparklog_offline_partitions", "which ones: sparklog_partition_offline"),
    Other(_of(CONTROLLER, "ActiveControllerCount"), "sparklog_service_leading",
          "one service at a time does a log's work"),
    Other(_of(CONTROLLER, "NewActiveControllersCount"), "sparklog_service_term",
          "of a log in a store"),
    Other(_of(COORDINATOR, "offset-commit-rate offset-commit-count"), _requests("OffsetCommit"),
          "requests, of any number of offsets"),
    Other(_of(COORDINATOR, "offset-deletion-rate offset-deletion-count"),
          _requests("OffsetDelete"), "requests"),
    Other(_of(COORDINATOR, "group-count") + _of(GROUPS, "NumGroups"),
          'count(count by (group) (sparklog_reader_offset{kind="group"}))',
          "groups that have committed"),
    Other(_of(GROUPS, "NumOffsets"), "count(sparklog_reader_offset)"),
    Other(("kafka.consumer:type=consumer-fetch-manager-metrics",), "sparklog_reader_lag_records",
          "records-lag-max, which only the consumer knows there; here of every registered reader"),
    Other(("kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
           "kafka.server:type=socket-server-metrics,name=expired-connections-killed-count"),
          'sparklog_kafka_closed_connections_total{reason="authentication"}',
          "with others that failed to authenticate"),
)  # fmt: skip
_NO_REPLICAS: Final = (
    "a partition has no replicas and no leader that is elected: one log dir or bucket holds it, "
    "and copies are the disk's, the store's or the tier's"
)
_NO_QUORUM: Final = (
    "there are no brokers and no controllers that agree by a metadata log: the commit ledger says "
    "what is so"
)
_GONE: Final = "Kafka itself has it no more: it went with ZooKeeper"
_NO_POOLS: Final = (
    "an endpoint has no threads for the network and no queue between them and those that work: "
    "sparklog_kafka_request_duration_seconds has the whole time, an overload shows there"
)
_NO_TRANSACTIONS: Final = "clients' transactions are refused"
ABSENT: Final = (
    Absent(
        _of(TOPICS, (
            "ReplicationBytesInPerSec ReplicationBytesOutPerSec ReassignmentBytesInPerSec "
            "ReassignmentBytesOutPerSec"
        ))
        + _of(REPLICAS, (
            "UnderReplicatedPartitions UnderMinIsrPartitionCount AtMinIsrPartitionCount "
            "LeaderCount IsrShrinksPerSec IsrExpandsPerSec FailedIsrUpdatesPerSec "
            "ReassigningPartitions"
        ))
        + _of(CONTROLLER, "PreferredReplicaImbalanceCount")
        + _of(STATS, "ElectionFromEligibleLeaderReplicasPerSec")
        + ("kafka.server:type=ReplicaFetcherManager,name=MaxLag",
           "kafka.server:type=FetcherLagMetrics,name=ConsumerLag"),
        _NO_REPLICAS,
    ),
    Absent(
        _of(STATS, "UncleanLeaderElectionsPerSec"),
        "nothing is elected; an offline partition that an administrator gave up is in the ledger "
        "(`sparklog commits`), and the alert SparklogLogStartJumped tells of what went",
    ),
    Absent(
        _of(CONTROLLER, (
            "FencedBrokerCount ActiveBrokerCount MetadataErrorCount LastAppliedRecordOffset "
            "LastCommittedRecordOffset LastAppliedRecordTimestamp LastAppliedRecordLagMs "
            "TimedOutBrokerHeartbeatCount EventQueueOperationsStartedCount "
            "EventQueueOperationsTimedOutCount"
        ))
        + _of(EVENTS, "EventQueueTimeMs EventQueueProcessingTimeMs")
        + _of(LOADER, "CurrentMetadataVersion HandleLoadSnapshotCount")
        + _of(EMITTER, "LatestSnapshotGeneratedBytes LatestSnapshotGeneratedAgeMs")
        + ("kafka.server:type=raft-metrics", "kafka.server:type=broker-metadata-metrics"),
        _NO_QUORUM,
    ),
    Absent(
        _of(CONTROLLER, (
            "TopicsToDeleteCount ReplicasToDeleteCount TopicsIneligibleToDeleteCount "
            "ReplicasIneligibleToDeleteCount"
        ))
        + _of(STATS, "LeaderElectionRateAndTimeMs") + _of(EVENTS, "EventQueueSize")
        + ("kafka.controller:type=ControllerChannelManager,name=RequestRateAndQueueTimeMs",),
        _GONE,
    ),
    Absent(
        (
            *_of(REQUESTS, (
                "RequestQueueTimeMs LocalTimeMs RemoteTimeMs ResponseQueueTimeMs "
                "ResponseSendTimeMs"
            )),
            "kafka.network:type=RequestChannel,name=RequestQueueSize",
            "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
            "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
            "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
        ),
        _NO_POOLS,
    ),
    Absent(
        _of(REQUESTS, "TemporaryMemoryBytes MessageConversionsTimeMs")
        + _of(TOPICS, "ProduceMessageConversionsPerSec FetchMessageConversionsPerSec"),
        "batches are kept and sent as they came: no older message format is converted to",
    ),
    Absent(
        ("kafka.server:type=Produce", "kafka.server:type=Fetch", "kafka.server:type=Request"),
        "clients have no quotas of bytes or time, nobody is throttled; of connections and memory "
        "they have: sparklog_kafka_closed_connections_total{reason=\"quota\"}",
    ),
    Absent(
        _of(COORDINATOR, (
            "num-partitions partition-load-time-max partition-load-time-avg "
            "thread-idle-ratio-avg event-queue-size event-queue-time-ms event-processing-time-ms "
            "event-purgatory-time-ms batch-linger-time-ms batch-flush-time-ms batch-flush-rate"
        )),
        "groups' offsets are small files or objects, not a topic __consumer_offsets that a "
        "coordinator loads and appends to",
    ),
    Absent(
        _of(COORDINATOR, (
            "consumer-group-count consumer-group-rebalance-rate consumer-group-rebalance-count "
            "group-completed-rebalance-rate group-completed-rebalance-count "
            "offset-expiration-rate offset-expiration-count"
        ))
        + _of(GROUPS, (
            "NumGroupsPreparingRebalance NumGroupsCompletingRebalance NumGroupsEmpty "
            "NumGroupsStable NumGroupsDead"
        )),
        "not counted; kafka-consumer-groups --describe --state asks the endpoint, JoinGroup and "
        "ConsumerGroupHeartbeat are in kafka_network_requestmetrics_requests_total",
    ),
    Absent(
        _of(COORDINATOR, (
            "streams-group-count streams-group-rebalance-rate streams-group-rebalance-count"
        )),
        "streams groups (KIP-1071) are not served",
    ),
    Absent(
        _of(TRANSACTIONS, "partition-load-time-max partition-load-time-avg")
        + _of(VERIFYING, "VerificationFailureRate VerificationTimeMs"),
        _NO_TRANSACTIONS,
    ),
    Absent(
        _of(REPLICAS, "ProducerIdCount"),
        "not counted; kafka-transactions describe-producers asks the endpoint",
    ),
    Absent(
        _of(TOPICS, (
            "BuildRemoteLogAuxStateRequestsPerSec BuildRemoteLogAuxStateErrorsPerSec"
        )),
        "no follower has to build its state from remote storage",
    ),
    Absent(
        _of(TOPICS, "RemoteLogSizeComputationTime RemoteLogMetadataCount"),
        "the metadata of copies is in memory, sizes are sums over it",
    ),
    Absent(
        _of(REMOTE, "RemoteLogManagerTasksAvgIdlePercent RemoteLogReaderFetchRateAndTimeMs")
        + _of(POOL, "RemoteLogReaderTaskQueueSize RemoteLogReaderAvgIdlePercent")
        + ("kafka.server:type=DelayedRemoteFetchMetrics,name=ExpiresPerSec",
           "kafka.server:type=DelayedRemoteListOffsetsMetrics,name=ExpiresPerSec"),
        "who reads asks the store itself, without a pool or a delayed request; how much it asks is "
        "in kafka_server_brokertopicmetrics_remotefetchrequests_total, how long rounds of copying "
        "take in sparklog_service_round_duration_seconds{work=\"tier\"}",
    ),
    Absent(
        _of(THROTTLED, (
            "remote-fetch-throttle-time-avg remote-fetch-throttle-time-max "
            "remote-copy-throttle-time-avg remote-copy-throttle-time-max"
        )),
        "not counted; the limit is remote.log.manager.copy.max.bytes.per.second, how far copies "
        "are behind is in kafka_server_brokertopicmetrics_remotecopylagbytes",
    ),
)  # fmt: skip


def same() -> dict[str, str]:
    """{MBean: metric} of those that Kafka documents and that are here under the name of it."""
    found = (*METRICS.values(), *network_metrics.METRICS)
    return {m.kafka: m.name for m in found if m.kafka in DOCUMENTED}


def kafka_markdown() -> str:
    """Return the section of docs/metrics.md."""
    lines = ["| Kafka's | here |", "|--|--|"]
    lines += [f"| {_cell((mbean,))} | `{name}` |" for mbean, name in same().items()]
    for mbeans, here, note in OTHERS:
        lines.append(f"| {_cell(mbeans)} | `{here}`{': ' if note else ''}{note} |")
    lines += ["", "| not here | because |", "|--|--|"]
    lines += [f"| {_cell(mbeans)} | {why} |" for mbeans, why in ABSENT]
    return "\n".join(lines) + "\n"


def _cell(mbeans: tuple[str, ...]) -> str:
    """MBeans by type: the domain and type once, then the names."""
    types: dict[str, list[str]] = {}
    for mbean in mbeans:
        kind, _, name = mbean.partition(",name=")
        types.setdefault(kind.replace(":type=", " "), []).append(name)
    parts = (
        f"{kind}: {', '.join(f'`{name}`' for name in names)}" if names != [""] else kind
        for kind, names in types.items()
    )
    return "; ".join(parts)
