"""Why a request, or a part of one, is refused: Kafka's error code, and words for people."""

from sparklog.errors import SparklogError
from sparklog.kafka.error_codes import error_code
from sparklog.kafka.messages import ErrorCode

REQUEST_ERRORS = (SparklogError, OSError)
"""What a part of a request may end with, and the others not: see `reason`."""


class ApiError(SparklogError):
    """Refused as a broker would, with `code`."""

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
    """Return the refusal of every change of a log that was opened for reading."""
    return ApiError(
        ErrorCode.cluster_authorization_failed,
        f"{path} is open for reading: nothing can be changed here; serve a log that is opened to "
        "be written to (an archive or a broker's own directory can't be)",
    )
