"""Topic ids: UUIDs in requests, text in the log. Source: org.apache.kafka.common.Uuid."""

from uuid import UUID

from sparklog.format.checkpoint_files import topic_id_bytes


def uuid_of(topic_id: str) -> UUID:
    """Return the UUID of a topic id in the text form of partition.metadata."""
    return UUID(bytes=topic_id_bytes(topic_id))
