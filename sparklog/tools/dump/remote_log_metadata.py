"""Decodes values of __remote_log_metadata like kafka-dump-log --remote-log-metadata-decoder.

Source: RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata
(toString, Kafka 4.1).
"""

from sparklog.errors import SparklogError
from sparklog.tiered.remote_log_metadata.records import (
    MetadataRecord,
    PartitionDeleteRecord,
    SegmentRecord,
    UpdateRecord,
    parse,
)
from sparklog.tiered.remote_segment import SegmentState

_NULL = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.Record.value()" is null'
)
"""The message that Kafka's tool prints for a tombstone, which comes from the JVM."""


def remote_payload(raw: bytes | None, offset: int) -> str:
    """Return the text of a value, or the reason why the value cannot be decoded."""
    if raw is None:
        return f"Error at offset {offset}, skipping. {_NULL}"
    try:
        return _text(parse(raw, path="value"))
    except (SparklogError, ValueError) as error:
        return f"Error at offset {offset}, skipping. {error}"


def _text(record: MetadataRecord) -> str:
    match record:
        case SegmentRecord():
            segment = record.segment
            epochs = ", ".join(f"{epoch}={start}" for epoch, start in segment.epochs)
            return (
                f"RemoteLogSegmentMetadata{{remoteLogSegmentId="
                f"{_id(segment.topic_id, segment.topic, segment.partition, segment.id)}, "
                f"startOffset={segment.base}, endOffset={segment.end - 1}, "
                f"brokerId={record.broker}, maxTimestampMs={segment.max_timestamp}, "
                f"eventTimestampMs={segment.time_ms}, segmentLeaderEpochs={{{epochs}}}, "
                f"segmentSizeInBytes={segment.size}, customMetadata={_custom(record.custom)}, "
                f"state={_state(segment.state)}, "
                f"txnIdxEmpty={str(not segment.has_txn_index).lower()}}}"
            )
        case UpdateRecord():
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId="
                f"{_id(record.topic_id, record.topic, record.partition, record.id)}, "
                f"customMetadata={_custom(record.custom)}, state={_state(record.state)}, "
                f"eventTimestampMs={record.time_ms}, brokerId={record.broker}}}"
            )
        case PartitionDeleteRecord():
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition="
                f"{record.topic_id}:{record.topic}-{record.partition}, "
                f"state=DELETE_PARTITION_{record.state.name}, "
                f"eventTimestampMs={record.time_ms}, brokerId={record.broker}}}"
            )


def _id(topic_id: str, topic: str, partition: int, segment_id: str) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={topic_id}:{topic}-{partition}, id={segment_id}}}"


def _custom(data: bytes | None) -> str:
    if data is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _state(state: SegmentState) -> str:
    verb, _, done = state.name.partition("_")
    return f"{verb}_SEGMENT_{done}"
