"""Names of topics and partitions that all layers use. Source: org.apache.kafka.common."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """The name of a topic and the number of a partition. Equal to the plain tuple.

    Source: Kafka's TopicPartition.

    Examples:
        >>> sparklog.TopicPartition("flights", 0) == ("flights", 0)
        True
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return Kafka's form, which is also the name of the partition's directory: `topic-0`."""
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition identified by topic id, so a re-created topic never matches."""

    topic_id: str
    partition: int

    def __str__(self) -> str:
        """Return the form of Kafka's TopicIdPartition in messages: `id:0`."""
        return f"{self.topic_id}:{self.partition}"
