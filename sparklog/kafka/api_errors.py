"""Errors of requests or of parts of a request: Kafka's error code and a message."""

import logging
from typing import Final

from sparklog.errors import (
    DataCorruptionError,
    FencedError,
    InvalidRequestError,
    LogLockedError,
    LogReplacedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.kafka.messages import ErrorCode
from sparklog.storage.groups import check_group

REQUEST_ERRORS = (SparklogError, OSError)
"""Errors that fail one part of a request and not the others: see `code_and_message`."""

# Subclasses come before their base classes, because the first match wins. Source:
# org.apache.kafka.common.protocol.Errors
_CODES: Final[tuple[tuple[type[BaseException], ErrorCode], ...]] = (
    (UnknownTopicError, ErrorCode.unknown_topic_or_partition),
    (RecordTooLargeError, ErrorCode.message_too_large),
    (InvalidRequestError, ErrorCode.invalid_request),
    (OffsetOutOfRangeError, ErrorCode.offset_out_of_range),
    (TopicReplacedError, ErrorCode.unknown_topic_id),
    (LogReplacedError, ErrorCode.kafka_storage_error),
    (DataCorruptionError, ErrorCode.kafka_storage_error),
    (FencedError, ErrorCode.invalid_producer_epoch),
    (OutOfOrderSequenceError, ErrorCode.out_of_order_sequence_number),
    (LogLockedError, ErrorCode.request_timed_out),
    (StorageUnavailableError, ErrorCode.kafka_storage_error),
)
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class ApiError(SparklogError):
    """An error of a request, with the error `code` of Kafka that the client receives."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_and_message(error: BaseException) -> tuple[ErrorCode, str]:
    """Return Kafka's error code and the message of an error in REQUEST_ERRORS."""
    if isinstance(error, ApiError):
        return error.code, str(error)
    if isinstance(error, OSError):
        return ErrorCode.kafka_storage_error, str(error)
    return error_code(error), str(error)


def read_only_error(path: str) -> ApiError:
    """Return the error for changes of a log that was opened for reading."""
    return ApiError(
        ErrorCode.cluster_authorization_failed,
        f"{path} is open for reading and can't be changed; serve a log that is opened for writing "
        "(an archive or a broker's own directory can't be)",
    )


def error_code(error: BaseException) -> ErrorCode:
    """Return Kafka's error code for an error; UNKNOWN_SERVER_ERROR if the class is not listed."""
    return next(
        (c for kind, c in _CODES if isinstance(error, kind)), ErrorCode.unknown_server_error
    )


def group_error(group: str, error: SparklogError) -> ErrorCode:
    """Return the error code of a failed group request, and log a warning.

    Transient errors are COORDINATOR_NOT_AVAILABLE, which clients retry. A streaming query's group
    is GROUP_AUTHORIZATION_FAILED, which stops the client with the group's name. Source:
    CoordinatorOperationExceptionHelper (Kafka 4.1).
    """
    _LOGGER.warning("group %s: %s", group, error)
    if isinstance(error, StorageUnavailableError | LogLockedError):
        return ErrorCode.coordinator_not_available
    if isinstance(error, InvalidRequestError):
        return ErrorCode.group_authorization_failed
    # A damaged group. Any other answer would make the client start at auto.offset.reset, and lose
    # its position.
    return ErrorCode.unknown_server_error


def name_error(group: str | None) -> ErrorCode:
    """Return NONE, or INVALID_GROUP_ID for an invalid group name."""
    try:
        check_group(group or "")
    except InvalidRequestError:
        return ErrorCode.invalid_group_id
    return ErrorCode.none
