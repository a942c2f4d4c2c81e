"""Names and ids of topics: internal and reserved names, new ids."""

import uuid
from collections.abc import Mapping
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.names import KAFKA_INTERNAL, RESERVED, check_topic, collides

REMOTE_METADATA: Final = "__remote_log_metadata"
"""The topic of remote log metadata; see sparklog.tiered.remote_log_metadata.topic."""

INTERNAL: Final = frozenset({"__sparklog_commits", "__cluster_metadata", REMOTE_METADATA})


def new_topic_id() -> str:
    """Return a random topic id in Kafka's text form that does not begin with a dash."""
    while True:
        text = topic_id_text(uuid.uuid4().bytes)
        if not text.startswith("-"):  # as Uuid.randomUuid: it would look like an option
            return text


def check_new(name: str, existing: Mapping[str, object]) -> None:
    """Raise InvalidRequestError unless a topic can be created under this name.

    `existing` has the topics of the log.
    """
    check_topic(name)
    if name in RESERVED or name.startswith("__sparklog_"):
        raise InvalidRequestError(f"topic {name} is reserved for internal use; choose another name")
    if name in existing:
        raise InvalidRequestError(f"topic {name} exists; alter or delete it, or use it")
    for other in existing:
        if collides(name, other):
            raise InvalidRequestError(
                f"topic {name} collides with {other}: '.' and '_' are the same in metric names"
            )


def refuse_brokers_own(name: str) -> None:
    """Raise InvalidRequestError for a broker's internal topic in an adopted log.

    Source: ReplicaManager.appendToLocalLog, "Cannot append to internal topic".
    """
    if name in KAFKA_INTERNAL:
        raise InvalidRequestError(
            f"topic {name} is internal to brokers, and other records would break it; choose "
            "another name"
        )
