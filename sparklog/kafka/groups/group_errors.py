"""Error codes of failed group requests.

Source: CoordinatorOperationExceptionHelper (Kafka 4.1).
"""

import logging
from typing import Final

from sparklog.errors import (
    InvalidRequestError,
    LogLockedError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.kafka.messages import ErrorCode
from sparklog.storage.groups import check_group

_LOGGER: Final = logging.getLogger("sparklog.kafka")


def group_error(group: str, error: SparklogError) -> ErrorCode:
    """Return the error code of a failed group request, and log a warning.

    Transient errors are COORDINATOR_NOT_AVAILABLE, which clients retry. A streaming query's group
    is GROUP_AUTHORIZATION_FAILED, which stops the client with the group's name.
    """
    _LOGGER.warning("group %s: %s", group, error)
    if isinstance(error, StorageUnavailableError | LogLockedError):
        return ErrorCode.coordinator_not_available
    if isinstance(error, InvalidRequestError):
        return ErrorCode.group_authorization_failed
    # a damaged group; starting elsewhere would lose its position
    return ErrorCode.unknown_server_error


def name_error(group: str | None) -> ErrorCode:
    """Return NONE, or INVALID_GROUP_ID for an invalid group name."""
    try:
        check_group(group or "")
    except InvalidRequestError:
        return ErrorCode.invalid_group_id
    return ErrorCode.none
