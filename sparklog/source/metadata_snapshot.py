"""Metadata of the selected partitions: offsets, times, bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.format.index import OFFSET_ENTRY
from sparklog.format.names import INDEX
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.index_entries import whole_entries
from sparklog.log.partition_reader import reader_of
from sparklog.log.positions import offsets_for_times
from sparklog.log.read_retry import last_stable_offset
from sparklog.log.timeline import Timeline
from sparklog.log.truncation_detection import LogTruncationDetector
from sparklog.source.admission import BytesByOffset
from sparklog.source.input_partitions import PlannedRange
from sparklog.source.offsets import Offsets
from sparklog.source.open_homes import is_missing, open_home
from sparklog.source.options import SourceOptions
from sparklog.source.patterns import compile_pattern
from sparklog.storage.group_store import Groups
from sparklog.storage.home import Home
from sparklog.storage.offset_ranges import SpansByKey
from sparklog.storage.segments import SegmentLog


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The state of the selected partitions at the same time.

    Attributes:
        ranges: {(topic, partition): (log start offset, end offset)}.
        ids: {topic: topic id, or None}.
        bases: First offsets of re-created topics, which start at the end of the deleted topic.
    """

    ranges: dict[TopicPartition, tuple[int, int]]
    ids: dict[str, str | None]
    bases: Offsets

    def first_offset(self, partition: TopicPartition) -> int:
        """Return the first offset of the topic; for a broker's topics the log start offset."""
        return self.bases.get(partition, self.ranges[partition][0])


class LogMetadata:
    """Metadata of a log opened read-only with a query's options.

    There is no cache between calls.
    """

    def __init__(self, options: SourceOptions, fs: FileSystem = LOCAL) -> None:
        self._options = options
        self._home = _home(options, fs)
        self.view, self._ledger = self._home.view, self._home.ledger
        self.truncation = LogTruncationDetector(self.view)
        wants_current = options.timeline == "current"
        self._timeline = Timeline(self._ledger) if wants_current else None

    @property
    def groups(self) -> Groups:
        """The log's registered readers."""
        return self._home.groups

    def snapshot(self, *, lenient: bool = False) -> MetadataSnapshot:
        """Return the selected partitions and their offsets.

        End offsets are high watermarks, or last stable offsets for read_committed.

        Args:
            lenient: Leave out topics and partitions that are missing, instead of raising an error.

        Raises:
            UnknownTopicError: A topic or partition that the options name is missing.
        """
        while True:
            with self.view.metadata_snapshot():
                chosen = self._chosen(lenient=lenient)
                ids = self._ids(chosen)
                ranges = self._ranges(chosen)
                if ids == self._ids(chosen):  # else a topic was re-created between the calls
                    break
        bases = {
            TopicPartition(topic, p): base
            for topic in ids
            for p, base in self.view.bases(topic).items()
        }
        return MetadataSnapshot(ranges, ids, bases)

    def _ids(self, chosen: list[TopicPartition]) -> dict[str, str | None]:
        # One look-up per topic: all its partitions have the same id.
        return {topic: self.view.topic_id(topic, p) for topic, p in dict(chosen).items()}

    def _ranges(self, chosen: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        spans = {TopicPartition(*key): span for key, span in self.view.spans(chosen).items()}
        if self._options.isolation_level != "read_committed":
            return spans
        return {
            key: (low, max(low, last_stable_offset(self.view, *key, high)))
            for key, (low, high) in spans.items()
        }

    def _chosen(self, *, lenient: bool) -> list[TopicPartition]:
        topics = self.view.topics()
        held = [
            TopicPartition(topic, p) for topic, info in topics.items() for p in sorted(info.dirs)
        ]
        options = self._options
        if options.subscribe_pattern is not None:
            pattern = compile_pattern(options.subscribe_pattern)
            return [key for key in held if pattern.fullmatch(key.topic)]
        assigned, subscribed = options.assigned, options.subscribed
        missing: list[str]
        if assigned is not None:
            missing = [str(key) for key in assigned if key not in held]
            chosen = [key for key in assigned if key in held]
        else:
            assert subscribed is not None
            missing = [topic for topic in subscribed if topic not in topics]
            chosen = [key for key in held if key.topic in subscribed]
        if missing and not lenient:
            others = "which has no topics. Check the path"
            if topics:
                others = f"whose topics are {', '.join(topics)}. Check the name"
            raise UnknownTopicError(
                f"{', '.join(missing)} not in {_name(options)}, {others}; if it is right, "
                f"{_advice(options)}"
            )
        return chosen

    def offsets_at_times(
        self, times: Mapping[TopicPartition, int], held: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset with at least the given timestamp (ms), or None."""
        offsets: dict[TopicPartition, int | None] = {}
        for topic in {topic for topic, _ in times}:
            when = {p: ms for (t, p), ms in times.items() if t == topic}
            answer = offsets_for_times(
                self.view, topic, when, held, isolation=self._options.isolation_level
            )
            offsets |= {TopicPartition(topic, p): offset for p, offset in answer.items()}
        return offsets

    def abandoned(self) -> SpansByKey:
        """Return the offsets that option timeline leaves out."""
        return {} if self._timeline is None else self._timeline.abandoned()

    def dropped(self) -> Offsets:
        """Return the end offsets of deleted topics, from the ledger.

        Cost: reads a ledger segment.
        """
        return dict(self._ledger.dropped())

    def with_plans(self, planned: list[PlannedRange]) -> list[PlannedRange]:
        """Add the task's plan to each range, if the log's home makes plans."""
        view = self.view
        plans = [view.plan(each.topic_partition, each.start, each.end) for each in planned]
        return [
            piece if plan is None else replace(piece, plan=plan)
            for piece, plan in zip(planned, plans, strict=True)
        ]

    def sizes(self, partition: TopicPartition, start: int, end: int) -> BytesByOffset:
        """Return how many bytes the log takes up to each offset in [start, end).

        The sizes are known at the entries of the offset index, and approximate between two entries.
        """
        segments = reader_of(self.view, *partition).segments
        points: list[tuple[int, int]] = []
        at = 0
        for segment in segments.metadata():
            # The last segment of a log dir grows: it ends where the log does.
            following = segment.end
            if following is None:
                following = self.view.spans([partition])[partition][1]
            if following < start or segment.base > end:
                continue
            points.append((segment.base, at))
            if segment.local:  # reading a remote index would cost a request
                entries = _entries(segments.index(segment.base, INDEX))
                points += [(segment.base + offset, at + position) for offset, position in entries]
            at += segment.size
            points.append((following, at))
        if not points:
            raise InvalidRequestError(f"{partition} contains no offsets of [{start}, {end})")
        return BytesByOffset.of(points)


def _home(options: SourceOptions, fs: FileSystem) -> Home:
    try:
        return open_home(options, fs)
    except InvalidRequestError:
        # A missing log raises the same error as a missing topic, so that option waitForTopics waits
        # for both.
        if not is_missing(options, fs):
            raise
        raise UnknownTopicError(
            f"{_name(options)} does not exist. Check the path; if it is right, {_advice(options)}",
            path=options.path,
        ) from None


def _name(options: SourceOptions) -> str:
    """Return the log's path as the user typed the path, and the absolute path if the two differ."""
    typed, path = options.typed_path or options.path, options.path
    return f"{typed}" if typed == path else f"{typed} ({path})"


def _advice(options: SourceOptions) -> str:
    """Return the advice for a missing log or topic."""
    if not options.streaming:
        return "start the writer first, and repeat the query when the writer has created the topic"
    if not options.wait_for_topics:
        return "start the writer first, or set option waitForTopics=true to wait for it"
    return (
        "restore the log: the query has begun to read it, and waitForTopics waits only before "
        "that. To start over, use another checkpoint"
    )


def _entries(index: SegmentLog | None) -> list[tuple[int, int]]:
    entries = whole_entries(index, OFFSET_ENTRY)
    entries = entries[entries["position"] > 0]  # a broker's preallocated tail is zeros
    # Interpolation needs no more points than this, and an index can have a million entries.
    step = max(1, len(entries) // 4096)
    return [(int(e["relative_offset"]), int(e["position"])) for e in entries[::step]]
