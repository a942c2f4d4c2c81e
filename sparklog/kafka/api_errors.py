"""Errors of requests or of parts of a request: Kafka's error code and a message."""

from sparklog.errors import SparklogError
from sparklog.kafka.error_codes import error_code
from sparklog.kafka.messages import ErrorCode

REQUEST_ERRORS = (SparklogError, OSError)
"""Errors that fail one part of a request and not the others: see `code_and_message`."""


class ApiError(SparklogError):
    """An error with Kafka's error `code`, as a broker would return it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_and_message(error: BaseException) -> tuple[ErrorCode, str]:
    """Return (code, message) of one of REQUEST_ERRORS."""
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
