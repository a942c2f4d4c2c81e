"""Descriptions of topics, like kafka-topics --describe."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self, TypeVar

from sparklog.clock import attempts
from sparklog.common import TopicPartition
from sparklog.errors import (
    InvalidRequestError,
    PartitionOfflineError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.format.names import KAFKA_INTERNAL
from sparklog.log.log import Log, home_of, view_of
from sparklog.log.partition_reader import PartitionReader, reader_of
from sparklog.log.read_retry import check_topic_id
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import TopicInfo

PATIENCE_MS: Final = 1000
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition: offsets [start, end), directory and segments. Sizes are in bytes.

    Attributes:
        size: The size of the local segments, or of all segments of a log in a store.
        segments: The number of the same segments.
        remote_segments: The number of segments that are only in remote storage.
        leader_epoch: The leader epoch, or None before the first record.
        offline: Why the partition cannot be read.
    """

    partition: int
    dir: str
    start: int
    end: int
    size: int
    segments: int
    remote_segments: int
    leader_epoch: int | None
    offline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with the topic id, partitions, and the configs that differ from the defaults."""

    topic: str
    topic_id: str
    partition_count: int
    configs: dict[str, str]
    partitions: list[PartitionDescription]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    def offline(self) -> Self:
        """Return a copy with only the offline partitions."""
        return replace(self, partitions=[p for p in self.partitions if p.offline is not None])


def matching(
    names: Iterable[str], pattern: str | None, *, exclude_internal: bool = False
) -> list[str]:
    """Return the sorted names that match a --topic argument of Kafka's tools.

    An existing name matches itself. Otherwise the pattern is a regular expression for entire names,
    in which a comma means "|", as in Kafka. Without a pattern all names match.

    Raises:
        InvalidRequestError: The regular expression is invalid.
    """
    found = sorted(n for n in names if not (exclude_internal and n in KAFKA_INTERNAL))
    if pattern is None or pattern in found:
        return found if pattern is None else [pattern]
    cleaned = "|".join(part.strip(" \"'") for part in pattern.strip().split(","))
    try:
        expression = re.compile(cleaned)
    except re.error as error:
        raise InvalidRequestError(
            f"topic {pattern!r} is neither an existing name nor a regular expression: {error}"
        ) from None
    return [name for name in found if expression.fullmatch(name)]


def describe_topics(log: Log, topics: Sequence[TopicInfo]) -> list[TopicDescription]:
    """Describe topics of an open log. Topics that were deleted in the meantime are left out.

    Cost: a listing per partition, and a stat per segment.
    """
    described = []
    for info in topics:
        try:
            described.append(_topic(log, info))
        except (FileNotFoundError, StaleReadError, TopicReplacedError, UnknownTopicError):
            # Only a topic that was deleted, or deleted and created again, is left out. If the same
            # topic still exists, its files are missing, which is damage.
            now = log.topics().get(info.name)
            if now is not None and now.id == info.id:
                raise
    return described


def _topic(log: Log, info: TopicInfo) -> TopicDescription:
    keys = {p: TopicPartition(info.name, p) for p in sorted(info.dirs)}
    spans = view_of(log).spans(list(keys.values()))
    parts = [
        _described(log, info, p, path, spans[keys[p]]) for p, path in sorted(info.dirs.items())
    ]
    for part in parts:
        if part.offline is None:
            check_topic_id(view_of(log), info.name, part.partition, info.id or None)
    return TopicDescription(
        topic=info.name,
        topic_id=info.id,
        partition_count=info.partitions,
        configs=info.config.to_dict(),
        partitions=parts,
    )


def _described(
    log: Log, info: TopicInfo, partition: int, path: str, span: tuple[int, int]
) -> PartitionDescription:
    try:
        reader = reader_of(view_of(log), info.name, partition)
        return _partition(reader, partition, path, span, has_ledger=home_of(log).ledger.exists)
    except PartitionOfflineError as error:
        return PartitionDescription(
            partition=partition, dir=path, start=span[0], end=span[1], size=0, segments=0,
            remote_segments=0, leader_epoch=None, offline=error.reason,
        )  # fmt: skip


def _partition(
    reader: PartitionReader, partition: int, path: str, span: tuple[int, int], *, has_ledger: bool
) -> PartitionDescription:
    segments = settled(reader.metadata)
    here = [segment for segment in segments if segment.local]
    if not here and has_ledger:  # a log in a store; a log dir always has a local, active segment
        here = segments
    return PartitionDescription(
        partition=partition,
        dir=path,
        start=span[0],
        end=span[1],
        size=sum(segment.size for segment in here),
        segments=len(here),
        remote_segments=len(segments) - len(here),
        leader_epoch=reader.leader_epoch(),
    )


def settled(look: Callable[[], T]) -> T:
    """Return the result of `look`, which reads files that a writer or the service may be changing.

    If a file disappears during the call, the call is repeated for about a second.
    """
    for _ in attempts(PATIENCE_MS):
        try:
            return look()
        except (FileNotFoundError, StaleReadError):
            continue
    return look()
