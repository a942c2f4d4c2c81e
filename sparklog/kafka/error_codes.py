"""sparklog's errors as Kafka's error codes. Source: org.apache.kafka.common.protocol.Errors."""

from typing import Final

from sparklog import errors
from sparklog.kafka.messages import ErrorCode

# subclasses before their base classes
_CODES: Final[tuple[tuple[type[BaseException], ErrorCode], ...]] = (
    (errors.UnknownTopicError, ErrorCode.unknown_topic_or_partition),
    (errors.RecordTooLargeError, ErrorCode.message_too_large),
    (errors.InvalidRequestError, ErrorCode.invalid_request),
    (errors.OffsetOutOfRangeError, ErrorCode.offset_out_of_range),
    (errors.TopicReplacedError, ErrorCode.unknown_topic_id),
    (errors.LogReplacedError, ErrorCode.kafka_storage_error),
    (errors.DataCorruptionError, ErrorCode.kafka_storage_error),
    (errors.FencedError, ErrorCode.invalid_producer_epoch),
    (errors.OutOfOrderSequenceError, ErrorCode.out_of_order_sequence_number),
    (errors.LogLockedError, ErrorCode.request_timed_out),
    (errors.StorageUnavailableError, ErrorCode.kafka_storage_error),
)


def error_code(error: BaseException) -> ErrorCode:
    """Return Kafka's error code for an error; UNKNOWN_SERVER_ERROR if the class is not listed."""
    return next(
        (c for kind, c in _CODES if isinstance(error, kind)), ErrorCode.unknown_server_error
    )
