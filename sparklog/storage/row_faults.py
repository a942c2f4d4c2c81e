"""What is wrong with rows that can't be staged: errors and texts, written once for all who stage.

Rows are staged by Python, and in Spark's JVM, which gets these texts with its plan
(`sparklog.sink.jvm_plan`). So a text counts no rows: how many are looked at at once differs.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.errors import InvalidRequestError, RecordTooLargeError, UnknownTopicError
from sparklog.format.columns import NULL_HEADER
from sparklog.format.names import TOPIC_CHARACTERS, TOPIC_REFUSED, TOPIC_TOO_LONG


@dataclass(frozen=True, slots=True)
class RowFault:
    """An error, and its text with the names of what is put into it in braces."""

    kind: type[InvalidRequestError]
    text: str

    def error(self, **values: object) -> InvalidRequestError:
        """Return it of some values, which are put in as they are."""
        return self.kind(self.text.format(**values))


NULL_TOPIC: Final = RowFault(
    InvalidRequestError,
    "a row has a null topic: give each one, or set option topic; nothing was appended",
)
UNKNOWN_TOPIC: Final = RowFault(
    UnknownTopicError,
    "topic {topic} is not in {home} and auto.create.topics.enable is false: create it, or correct "
    "the rows; nothing was appended",
)
NO_PARTITION: Final = RowFault(
    InvalidRequestError,
    "topic {topic} has no partition {partition}: want one of {partitions}; nothing was appended",
)
NO_KEY: Final = RowFault(
    InvalidRequestError,
    "topic {topic} is compacted (cleanup.policy), and a row has no key: compaction would erase it. "
    "Give every row a key; nothing was appended",
)
TOO_LARGE: Final = RowFault(
    RecordTooLargeError,
    "topic {topic}: a record makes a batch of {size} bytes, max.message.bytes is {most}: make it "
    "smaller, or raise the limit. Where the topic exists an option of the writer doesn't raise it, "
    "but: sparklog configs alter {home} --topic {topic} --add-config max.message.bytes=..., or "
    "Log.alter_topic",
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
"""By the name that a plan for the JVM gives them; of a topic's name too, by `check_topic`."""
