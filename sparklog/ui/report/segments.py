"""Lists the segments of a partition with their offsets, times, codec and place, without a lock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.batch import HEADER_SIZE, MAGIC, unpack_header
from sparklog.format.compression import Codec
from sparklog.fs import FileSystem
from sparklog.log.batch_figures import BatchFigures, BatchTally
from sparklog.log.batch_sample import PARTITIONS_MAX, choose_partitions, sample
from sparklog.log.due_segments import Tier, largest_timestamps
from sparklog.log.partition_reader import reader_of
from sparklog.service.health import Examiner
from sparklog.storage.segments import PartitionSegments, SegmentMetadata, StaleReadError
from sparklog.storage.view import View
from sparklog.ui.report.model import PartitionReport, SegmentReport, Where

_ATTEMPTS = 3  # the service may delete or replace segments while they are listed
# Positions in the first message of magic 0 and 1. A batch of magic 2 has the magic at 16, too.
_MAGIC_AT, _ATTRIBUTES_AT, _TIME_AT = 16, 17, 18
_CODEC_MASK = 0x07
_SAMPLES_MAX: Final = 512  # sampled partitions of all topics together, but at least one per topic
IN_STORE_MAX: Final = 16  # sampled topics of a log in a bucket, where each topic costs some GETs


@dataclass(frozen=True, slots=True)
class ListedSegments:
    """The segments of a partition at the time of the report.

    `ages`: the time from which retention computes the age of a segment, by base offset. `faults`:
    descriptions of damage.
    """

    start: int
    end: int
    segments: tuple[SegmentReport, ...]
    ages: dict[int, int]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Head:
    """Codec and time from the header of a segment's first batch, or the header's `fault`."""

    codec: str | None = None
    first_ms: int | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Read:
    """Results of reading a segment. `age`: its largest timestamp, or the time of its file."""

    head: _Head
    age: int
    fault: str = ""


class ReportCache:
    """Caches results of a report for the next report of the same log. Not thread-safe.

    Files of closed segments never change, so they are read once. Segments that the last report did
    not contain are dropped from the cache.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], _Read] = {}
        self._met: dict[tuple[object, ...], _Read] = {}
        self.examiner: Examiner | None = None
        """Examines the health of the log. Some checks compare with earlier reports."""

        self._batches: dict[str, tuple[object, tuple[BatchFigures, ...]]] = {}

    def batches(
        self, topic: str, ends: object, look: Callable[[], tuple[BatchFigures, ...]]
    ) -> tuple[BatchFigures, ...]:
        """Return the cached batch statistics of a topic, or call `look`.

        `ends`: the sampled partitions and their ends. Cached statistics with other ends are old.
        """
        known = self._batches.get(topic)
        if known is None or known[0] != ends:
            known = self._batches[topic] = ends, look()
        return known[1]

    def read(self, fs: FileSystem, info: SegmentMetadata, read: Callable[[], _Read]) -> _Read:
        """Return the cached results of a closed segment, or call `read`."""
        if info.end is None:  # the active segment grows
            return read()
        # The cleaner may write a new file under the same name, so the key has the file's identity.
        key = info.where, info.size, info.end, fs.identity(info.where)
        found = self._met[key] = self._seen.get(key) or read()
        return found

    def turn(self) -> None:
        """End a report: drop results that the report did not use."""
        self._seen, self._met = self._met, {}


def list_partition(
    fs: FileSystem,
    view: View,
    key: TopicPartition,
    copied: Tier,
    span: tuple[int, int] | None = None,
    *,
    memory: ReportCache,
) -> ListedSegments:
    """List the segments of a partition.

    Cost: about 0.4 ms per local segment for a small read and the end of its indexes, or two stats
    if `memory` contains the segment. A remote segment costs no request.

    Args:
        fs: The file system.
        view: The view of the log.
        key: The partition.
        copied: The offsets that are copied to remote storage.
        span: The log start and the high watermark. With None, the function reads both.
        memory: The cache.

    Raises:
        StaleReadError, FileNotFoundError: The partition was deleted.
        DataCorruptionError: The partition is damaged.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _list(fs, view, key, copied, span, memory)
        except (StaleReadError, FileNotFoundError):
            if attempt + 1 == _ATTEMPTS:
                raise
            view.refresh()
    raise AssertionError("unreachable")


def _list(
    fs: FileSystem,
    view: View,
    key: TopicPartition,
    copied: Tier,
    span: tuple[int, int] | None,
    memory: ReportCache,
) -> ListedSegments:
    reader = reader_of(view, *key)
    start, end = view.spans([key])[key] if span is None else span
    segments = reader.segments
    found = reader.metadata()
    # Segments after `end` were created after `span` was read.
    found = [each for each in found if each.base <= end] or found[:1]
    start = max(start, found[0].base) if found[0].local else start
    end = max(start, end)
    largest = largest_timestamps(segments, end)
    faults: list[str] = []
    ages: dict[int, int] = {}
    reports: list[SegmentReport] = []
    for info in found:
        read = (
            memory.read(fs, info, partial(_read, segments, info, largest))
            if info.local
            else _from_metadata(segments, info)
        )
        faults += [fault for fault in (read.head.fault, read.fault) if fault]
        reports.append(_segment(segments, info, read, copied, end))
        ages[info.base] = read.age
    return ListedSegments(start, end, tuple(reports), ages, tuple(faults))


def _from_metadata(segments: PartitionSegments, info: SegmentMetadata) -> _Read:
    """Return the results for a remote segment from the metadata, without a request."""
    # A partition in a bucket without records is listed as one segment without bytes or an object.
    if not info.size:
        return _Read(_Head(), -1)
    told = -1 if info.max_timestamp is None else info.max_timestamp
    return _Read(_Head(), told if told >= 0 else segments.modified_ms(info.base))


def _read(
    segments: PartitionSegments, info: SegmentMetadata, largest: Callable[[int], int]
) -> _Read:
    head = _head(segments, info)
    if head.fault:
        head = replace(head, fault=f"{info.where}: {head.fault}")
    try:
        return _Read(head, largest(info.base))
    except DataCorruptionError as error:
        return _Read(head, segments.modified_ms(info.base), str(error))


def _segment(
    segments: PartitionSegments, info: SegmentMetadata, read: _Read, copied: Tier, end: int
) -> SegmentReport:
    stop = info.end
    if stop is None or stop > end:  # leave out records that were appended after `end` was read
        stop = max(info.base, end)
    head, age = read.head, read.age
    undated = not info.size or (head.first_ms is None and age == segments.modified_ms(info.base))
    where = Where.LOCAL
    if not info.local:
        where = Where.REMOTE
    elif info.end is not None and copied.holds(info.base, stop):
        where = Where.BOTH
    first = head.first_ms if head.first_ms is not None else age
    unread = undated or where is Where.REMOTE  # reading the first batch costs a request
    return SegmentReport(
        base=info.base,
        end=stop,
        bytes=info.size,
        where=where,
        codec=head.codec,
        first_ms=None if unread else min(first, age),
        last_ms=None if undated else age,
        time_of_file=undated and info.size > 0,
    )


def _head(segments: PartitionSegments, info: SegmentMetadata) -> _Head:
    """Read the header of the first batch. The CRC is not checked; `sparklog verify` does."""
    if not info.size:
        return _Head()
    raw = segments.log(info.base).pread(HEADER_SIZE, 0)
    if len(raw) <= _ATTRIBUTES_AT:
        return _Head(fault=f"the file has only {len(raw)} bytes, less than a record batch")
    magic = raw[_MAGIC_AT]
    if magic < MAGIC:
        stamp = int.from_bytes(raw[_TIME_AT : _TIME_AT + 8], "big", signed=True) if magic else -1
        return _checked(raw[_ATTRIBUTES_AT] & _CODEC_MASK, stamp)
    if magic > MAGIC or len(raw) < HEADER_SIZE:
        return _Head(fault=f"the first batch can't be read (magic {magic})")
    header = unpack_header(raw, 0)
    if not info.base <= header.base_offset < (info.end or 2**63):
        return _Head(fault=f"the first batch has offset {header.base_offset}, outside the segment")
    # KIP-534: the cleaner stores the delete horizon in base_timestamp, in place of a record's time.
    horizon = header.delete_horizon_ms is not None
    stamp = header.max_timestamp if horizon else header.base_timestamp
    return _checked(header.attributes & _CODEC_MASK, stamp)


def _checked(codec: int, stamp: int) -> _Head:
    try:
        name = Codec(codec).name.lower()
    except ValueError:
        return _Head(fault=f"the first batch has the unknown codec {codec}")
    return _Head(name, stamp if stamp >= 0 else None)


def codecs_of(segments: Sequence[SegmentReport]) -> list[str]:
    """Return the codecs of some segments, sorted by descending size."""
    sizes: dict[str, int] = {}
    for segment in segments:
        if segment.codec is not None:
            sizes[segment.codec] = sizes.get(segment.codec, 0) + segment.bytes
    return sorted(sizes, key=lambda name: -sizes[name])


def topic_batches(
    view: View, partitions: Sequence[PartitionReport], topics: int, memory: ReportCache
) -> tuple[BatchFigures, ...]:
    """Return statistics of the newest batches of a topic, or () if none can be read.

    Cost: 1 to 3 ms for each of up to four partitions, or nothing if `memory` contains them.

    Args:
        view: The view of the log.
        partitions: The partitions of the topic.
        topics: The number of topics of the log. With many topics, fewer partitions are read.
        memory: The cache.
    """
    held = {p.partition: p.end for p in partitions if p.error is None and p.bytes}
    if not held:
        return ()
    most = max(1, min(PARTITIONS_MAX, _SAMPLES_MAX // max(topics, 1)))
    chosen = choose_partitions(sorted(held), most)
    topic = partitions[0].topic

    def look() -> tuple[BatchFigures, ...]:
        tally = BatchTally()
        for number in chosen:
            try:
                sample(reader_of(view, topic, number).segments, held[number], tally)
            except (SparklogError, OSError):
                continue  # listing its segments reported the error
        return tally.figures(sampled=True)

    return memory.batches(topic, tuple((n, held[n]) for n in chosen), look)
