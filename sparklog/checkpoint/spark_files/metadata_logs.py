"""Spark's logs of batches: `offsets/N`, the plan of batch N, and `commits/N`, its completion.

`offsets/N` has the offsets that batch N reads up to, as planned before it runs:

    v1, or v2                                  the version
    {"batchWatermarkMs": ..., "batchTimestampMs": ..., "conf": {...}}
    {"topic": {"0": 123}}                      v1: a line for each source, `-` for none
    name:{"topic": {"0": 123}}                 v2 (sources by name): the same with a name

`commits/N`:

    v1, v2 or v3
    {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"<operator>": [["<id>", ...], ...]}}

From v2 on, with state checkpoint format 2, each partition of an operator has the ids of its stores,
which are part of the names of the state files of this batch.

Source: OffsetSeqLog, OffsetSeq, CommitLog (Spark 4.2).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.storage.query_origin import ASIDE

_NONE: Final = "-"
_OFFSET_VERSIONS: Final = ("v1", "v2")
_COMMIT_VERSIONS: Final = ("v1", "v2", "v3")
StateIds = Mapping[int, list[list[str]]]
TopicOffsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffsets:
    """The plan of a batch.

    Attributes:
        sources: {name of a source, or in v1 its number: text of the offset, or None}.
        watermark_ms: The event-time watermark of the batch.
        timestamp_ms: When the batch was planned.
    """

    batch: int
    version: int
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: Mapping[str, str | None]


def parse_offsets(data: bytes, *, batch: int, path: str) -> BatchOffsets:
    """Parse the content of `offsets/<batch>`; `path` is for errors.

    Raises:
        DataCorruptionError: The content isn't in Spark's format.
    """
    file = read_metadata_log(data, path, _OFFSET_VERSIONS)
    by_name = file.version == 2
    sources: dict[str, str | None] = {}
    for number, line in enumerate(file.lines):
        name, colon, text = line.partition(":") if by_name else (str(number), ":", line)
        if not colon:
            raise DataCorruptionError(
                f"the line {line[:40]!r} must have the form `source:offset`", path=path
            )
        sources[name] = None if text == _NONE else text
    conf = file.metadata.get("conf", {})
    return BatchOffsets(
        batch=batch,
        version=file.version,
        watermark_ms=_number(file.metadata, "batchWatermarkMs", path),
        timestamp_ms=_number(file.metadata, "batchTimestampMs", path),
        conf={str(key): str(value) for key, value in conf.items()},
        sources=sources,
    )


class MetadataLogFile(NamedTuple):
    """A file of Spark's metadata logs: version, the JSON object in line 2, and all later lines."""

    version: int
    metadata: dict[str, Any]
    lines: list[str]


def read_metadata_log(data: bytes, path: str, versions: tuple[str, ...]) -> MetadataLogFile:
    """Split a file of `offsets` or `commits`.

    Raises:
        DataCorruptionError: The content isn't in Spark's format.
    """
    try:
        # Spark writes no final newline, but an editor may.
        first, *rest = data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataCorruptionError(
            "the file is not valid UTF-8", path=path, position=error.start
        ) from error
    if first.strip() not in versions:
        raise DataCorruptionError(
            f"the version must be one of {', '.join(versions)}; got {first[:20]!r}",
            path=path,
            position=0,
        )
    text = rest[0].strip() if rest else ""
    try:
        metadata = json.loads(text or "{}")
    except ValueError as error:
        raise DataCorruptionError(f"line 2 is not valid JSON: {error}", path=path) from error
    if not isinstance(metadata, dict):
        raise DataCorruptionError("line 2 is not a JSON object", path=path)
    return MetadataLogFile(int(first.strip()[1:]), metadata, rest[1:])


def without_offsets(plan: MetadataLogFile) -> MetadataLogFile:
    """Return a plan of `offsets` in which no source has an offset."""
    names = [line.partition(":")[0] + ":" for line in plan.lines] if plan.version > 1 else None
    return plan._replace(lines=[name + _NONE for name in names or [""] * len(plan.lines)])


def topics_of(text: str | None) -> TopicOffsets | None:
    """Return the offsets of a Kafka or sparklog source by partition, or None for other sources."""
    document = document_of(text)
    if not isinstance(document, dict) or not document:
        return None
    found: TopicOffsets = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            return None
        if ASIDE in topic:
            continue
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int:
                return None
            found[TopicPartition(topic, int(partition))] = offset
    return found


def log_offset_of(text: str | None) -> int | None:
    """Return the `logOffset` of a file source: the newest batch in the source's own log."""
    document = document_of(text)
    offset = document.get("logOffset") if isinstance(document, dict) else None
    return offset if type(offset) is int else None


def document_of(text: str | None) -> Any:
    """Return the JSON document of an offset, or the text if the offset isn't JSON."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def rows_between(start: str | None, end: str | None) -> int | None:
    """Return the number of rows between two offsets of a source, if known.

    Known for topics (as offsets, so compacted records count) and for rate-micro-batch.
    """
    before, after = topics_of(start), topics_of(end)
    if after is not None:
        if before is None or not after.keys() <= before.keys():
            return None  # the start offsets of new partitions are unknown
        return sum(offset - before[key] for key, offset in after.items())
    counts = _count(start), _count(end)
    return None if counts[0] is None or counts[1] is None else counts[1] - counts[0]


def _count(text: str | None) -> int | None:
    document = document_of(text)
    if not isinstance(document, dict) or document.keys() != {"offset", "timestamp"}:
        return None
    return document["offset"] if type(document["offset"]) is int else None  # rate-micro-batch


def _number(metadata: Mapping[str, Any], key: str, path: str) -> int:
    value = metadata.get(key, 0)
    if type(value) is not int:
        raise DataCorruptionError(f"{key} must be a number; got {value!r}", path=path)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The commit of a batch.

    Attributes:
        state_ids: {operator: for each partition, the ids of the stores}. None in format 1.
    """

    batch: int
    version: int
    next_watermark_ms: int
    state_ids: StateIds | None


def parse_commit(data: bytes, *, batch: int, path: str) -> Commit:
    """Parse the content of `commits/<batch>`; `path` is for errors.

    Raises:
        DataCorruptionError: The content isn't in Spark's format.
    """
    version, metadata, _ = read_metadata_log(data, path, _COMMIT_VERSIONS)
    watermark = metadata.get("nextBatchWatermarkMs", 0)
    ids = metadata.get("stateUniqueIds")
    try:
        state_ids = None if not ids else {int(key): _partitions(ids[key]) for key in ids}
    except (TypeError, ValueError, LookupError) as error:
        raise DataCorruptionError(f"stateUniqueIds can't be read: {error}", path=path) from error
    if type(watermark) is not int:
        raise DataCorruptionError(
            f"nextBatchWatermarkMs must be a number; got {watermark!r}", path=path
        )
    return Commit(batch=batch, version=version, next_watermark_ms=watermark, state_ids=state_ids)


def _partitions(value: object) -> list[list[str]]:
    if not isinstance(value, list) or not all(isinstance(part, list) for part in value):
        raise TypeError(f"{value!r} is not a list of lists")
    return [[str(each) for each in part] for part in value]
