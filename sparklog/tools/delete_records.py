"""Raises log start offsets as a JSON file specifies, like kafka-delete-records.

Source: DeleteRecordsCommand (Kafka 4.1), KIP-107.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.log.log import Log

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeletion:
    """The result for a partition: the new log start offset, or why no records were deleted."""

    topic: str
    partition: int
    low_watermark: int | None = None
    error: str | None = None


def parse_offset_json(text: str) -> Offsets:
    """Parse {"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}.

    Raises:
        InvalidRequestError: The text has another form, or names a partition twice.
    """
    wanted = '{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}'
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"the offset file is not JSON ({error}): it must be like {wanted}"
        ) from None
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise InvalidRequestError(
            f"the offset file has no list 'partitions': it must be like {wanted}"
        )
    if document.get("version", 1) != 1:
        raise InvalidRequestError(
            f"the offset file has version {document['version']!r} instead of 1: it must be like "
            f"{wanted}"
        )
    return offsets_by_partition(_row(row, wanted) for row in rows)


def _row(row: Any, wanted: str) -> tuple[str, int, int]:
    found = row if isinstance(row, dict) else {}
    topic, partition, offset = (found.get(name) for name in ("topic", "partition", "offset"))
    if not isinstance(topic, str) or type(partition) is not int or type(offset) is not int:
        raise InvalidRequestError(
            f"the offset file has an invalid entry {json.dumps(row)}: it must be like {wanted}"
        )
    return topic, partition, offset


def parse_offset(text: str) -> tuple[str, int, int]:
    """Parse "topic:partition:offset".

    Raises:
        InvalidRequestError: The text has another form.
    """
    topic, _, rest = text.partition(":")
    partition, _, offset = rest.partition(":")
    try:
        return topic, int(partition), int(offset)
    except ValueError:
        raise InvalidRequestError(
            f"offset {text!r} must have the form topic:partition:offset; -1 selects all records"
        ) from None


def offsets_by_partition(rows: Iterable[tuple[str, int, int]]) -> Offsets:
    """Return {(topic, partition): offset}.

    Raises:
        InvalidRequestError: A partition is named twice.
    """
    found: Offsets = {}
    for topic, partition, offset in rows:
        key = TopicPartition(topic, partition)
        if key in found:
            raise InvalidRequestError(f"{key} is named twice")
        found[key] = offset
    if not found:
        raise InvalidRequestError(
            "the offset file names no partition: the list 'partitions' is empty"
        )
    return found


def delete_records(log: Log, offsets: Offsets) -> list[RecordDeletion]:
    """Raise the log start offset of each partition; -1 stands for the high watermark.

    A partition that fails does not affect the others. The result contains the error.
    """
    done = []
    for (topic, partition), offset in offsets.items():
        try:
            # A call per partition, so that an invalid offset does not reject the others.
            start = log.delete_records(topic, {partition: offset})[partition]
            done.append(RecordDeletion(topic=topic, partition=partition, low_watermark=start))
        except SparklogError as error:
            done.append(RecordDeletion(topic=topic, partition=partition, error=str(error)))
    return done
