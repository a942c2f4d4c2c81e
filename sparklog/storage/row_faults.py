"""Reasons why rows cannot be staged: error classes and messages, shared by all stagers.

Rows are staged by Python and by Spark's JVM, which gets these messages with its plan
(`sparklog.sink.jvm_plan`). A message therefore gives no count of rows, because the stagers check
different numbers of rows at a time.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.errors import InvalidRequestError, RecordTooLargeError, UnknownTopicError
from sparklog.format.columns import NULL_HEADER
from sparklog.format.names import TOPIC_CHARACTERS, TOPIC_REFUSED, TOPIC_TOO_LONG


@dataclass(frozen=True, slots=True)
class RowFault:
    """An error class, and the message as a format string."""

    kind: type[InvalidRequestError]
    text: str

    def error(self, **values: object) -> InvalidRequestError:
        """Return the error with the values inserted into the message."""
        return self.kind(self.text.format(**values))


NULL_TOPIC: Final = RowFault(
    InvalidRequestError,
    "a row has a null topic: set a topic in each row, or set option topic; nothing was appended",
)
UNKNOWN_TOPIC: Final = RowFault(
    UnknownTopicError,
    "topic {topic} is not in {home} and auto.create.topics.enable is false: create the topic, or "
    "correct the rows; nothing was appended",
)
NO_PARTITION: Final = RowFault(
    InvalidRequestError,
    "topic {topic} has no partition {partition}: expected one of {partitions}; nothing was "
    "appended",
)
NO_KEY: Final = RowFault(
    InvalidRequestError,
    "topic {topic} is compacted (cleanup.policy), and a row has no key: compaction would erase it. "
    "Give every row a key; nothing was appended",
)
TOO_LARGE: Final = RowFault(
    RecordTooLargeError,
    "topic {topic}: a record makes a batch of {size} bytes, but max.message.bytes is {most}: make "
    "the record smaller, or raise the limit. If the topic exists, options of the writer don't "
    "raise the limit: use sparklog configs alter {home} --topic {topic} --add-config "
    "max.message.bytes=..., or Log.alter_topic",
)

ROW_FAULTS: Final = {
    "null_topic": NULL_TOPIC,
    "unknown_topic": UNKNOWN_TOPIC,
    "topic_refused": RowFault(InvalidRequestError, TOPIC_REFUSED),
    "topic_too_long": RowFault(InvalidRequestError, TOPIC_TOO_LONG),
    "topic_characters": RowFault(InvalidRequestError, TOPIC_CHARACTERS),
    "no_partition": NO_PARTITION,
    "no_key": NO_KEY,
    "null_header": RowFault(InvalidRequestError, NULL_HEADER),
    "too_large": TOO_LARGE,
}
"""Row faults by their name in plans for the JVM. `check_topic` uses those of topic names."""
