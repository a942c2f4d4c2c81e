"""Names of a log's parts that every layer speaks of. Source: org.apache.kafka.common."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """The name of a topic and the number of a partition. Equal to the plain tuple."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's form, also the name of the partition's directory: `topic-0`."""
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id, which a topic that is made again under its name has not."""

    topic_id: str
    partition: int

    def __str__(self) -> str:
        """The form of Kafka's TopicIdPartition in messages: `id:0`."""
        return f"{self.topic_id}:{self.partition}"
