"""What clients are told where a group's request fails.

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
    """Return the error code for a group's request that failed; a warning says why.

    What passes is COORDINATOR_NOT_AVAILABLE, which clients try again. A streaming query's group is
    GROUP_AUTHORIZATION_FAILED, which ends them with the group's name.
    """
    _LOGGER.warning("group %s: %s", group, error)
    if isinstance(error, StorageUnavailableError | LogLockedError):
        return ErrorCode.coordinator_not_available
    if isinstance(error, InvalidRequestError):
        return ErrorCode.group_authorization_failed
    return ErrorCode.unknown_server_error  # it is damaged: to begin elsewhere would lose its place


def name_error(group: str | None) -> ErrorCode:
    """Return NONE, or INVALID_GROUP_ID for what can be no group's name."""
    try:
        check_group(group or "")
    except InvalidRequestError:
        return ErrorCode.invalid_group_id
    return ErrorCode.none
