"""The section "Segments": maps of each topic's segments by offset and by time, and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from sparklog.quantities import DAY_MS
from sparklog.ui.report.charts import (
    EMPTY,
    READER,
    UNKNOWN,
    Axis,
    Mark,
    Strip,
    blocks,
    mark,
    offset_axis,
    strip,
    time_axis,
)
from sparklog.ui.report.growth import begins
from sparklog.ui.report.labels import place_legend, topic_link
from sparklog.ui.report.model import (
    LogReport,
    PartitionReport,
    ReaderReport,
    SegmentReport,
    TopicReport,
)
from sparklog.ui.report.segments import codecs_of
from sparklog.ui.templating import render
from sparklog.ui.units import plural, size_text

# A large log has tens of thousands of segments, so the number of SVG shapes is limited:
TOPICS_MAX: Final = 24  # topics with a map; the others are rows of a table
_OPEN_MAX: Final = 8  # topics whose map is unfolded at first
ROWS_MAX: Final = 16  # drawn partitions per topic
TABLE_MAX: Final = 60  # rows of the table of topics without a map
SEGMENTS_MAX: Final = 48  # rows of the table of a topic's segments
_BLOCKS: Final = 4000  # blocks of all maps by offset; as many of the maps by time
_BLOCKS_PER_ROW: Final = 160
_MARKS: Final = 8  # drawn readers per partition
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
Readers = dict[tuple[str | None, int | None], list[ReaderReport]]


@dataclass(frozen=True, slots=True)
class MapRow:
    """The row of a partition in both maps of a topic.

    `by_offset` is None if the partition can't be read. `by_time` is None without timestamps, too.
    """

    partition: PartitionReport
    by_offset: Strip | None
    by_time: Strip | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMap:
    """The maps and tables of a topic.

    Attributes:
        topic: The topic.
        link: The URL of the topic's page, or "".
        facts: Important numbers as one line.
        rows: A row per drawn partition, in both maps.
        offset_axis: The axis of the map by offset.
        time_axis: The axis of the map by time, or None if no record has a timestamp.
        left: How many partitions are not drawn.
        left_bytes: The size of the partitions that are not drawn.
        segments: The newest segments, as (partition, segment).
        segments_left: How many segments are not in `segments`.
    """

    topic: TopicReport
    link: str
    facts: str
    rows: tuple[MapRow, ...]
    offset_axis: Axis
    time_axis: Axis | None
    left: int
    left_bytes: int
    segments: list[tuple[int, SegmentReport]]
    segments_left: int


def segments_section(report: LogReport, *, browse: bool) -> Markup:
    """Return the HTML of the section: maps of the largest topics, and a table of the others.

    `browse`: names of topics are links.
    """
    topics = sorted(report.topics, key=lambda t: -t.bytes)
    shown = [t for t in topics[:TOPICS_MAX] if t.bytes or any(p.error for p in t.partitions)]
    drawn = {topic.name for topic in shown}
    rest = [topic for topic in topics if topic.name not in drawn]
    rows = sum(min(len(t.partitions), ROWS_MAX) for t in shown)
    most = max(8, min(_BLOCKS_PER_ROW, _BLOCKS // max(rows, 1)))
    readers: Readers = {}
    for reader in report.readers:
        if reader.offset is not None and not reader.expired:
            readers.setdefault((reader.topic, reader.partition), []).append(reader)
    maps = [_topic_map(report, topic, most, readers, browse) for topic in shown]
    return render(
        "report/segments.html",
        is_tiered=report.is_tiered,
        legend=_legend(report, shown),
        has_codecs=any(_is_mixed(t) for t in shown),
        maps=maps[:_OPEN_MAX],
        folded_maps=maps[_OPEN_MAX:],
        folded_bytes=sum(t.bytes for t in shown[_OPEN_MAX:]),
        rest=rest[:TABLE_MAX],
        rest_count=len(rest),
        rest_bytes=sum(t.bytes for t in rest),
        rows_max=TABLE_MAX,
    )


def _legend(report: LogReport, shown: Sequence[TopicReport]) -> list[tuple[str, str]]:
    segments = [s for t in shown for s in t.segments]
    codecs = {s.codec or UNKNOWN for t in shown if _is_mixed(t) for s in t.segments if s.bytes}
    entries = place_legend(s.where for s in segments) if report.is_tiered else []
    entries += [(f"c-{c}", c if c != "none" else "uncompressed") for c in CODECS if c in codecs]
    if UNKNOWN in codecs:
        entries.append((f"c-{UNKNOWN}", "codec not read: remote"))
    partitions = [p for t in shown for p in t.partitions]
    if any(not s.bytes for p in partitions for s in p.segments[:-1]):
        entries.append((EMPTY, "empty after compaction"))
    elif any(s.base < p.log_start for p in partitions for s in p.segments):
        entries.append((EMPTY, "before the log start"))
    entries.append(("start", "log start"))
    if report.readers:
        entries.append((READER, "a registered reader"))
    return entries


def _is_mixed(topic: TopicReport) -> bool:
    """Return whether the segments of a topic have several codecs.

    Only then the map shows codecs; a single codec is part of `TopicMap.facts`.
    """
    return len(codecs_of(topic.segments)) > 1


def _topic_map(
    report: LogReport, topic: TopicReport, most: int, readers: Readers, browse: bool
) -> TopicMap:
    drawn = sorted(topic.partitions, key=lambda p: (-p.bytes, p.partition))[:ROWS_MAX]
    drawn.sort(key=lambda p: p.partition)
    before = max(map(_before, drawn), default=0)
    widest = max([1, *(p.offsets for p in drawn)]) + before
    span = _time_span(drawn, report.time_ms)
    scales = _Scales(before, widest, span, most, codecs=_is_mixed(topic), tiered=report.is_tiered)
    newest = [(p.partition, s) for p in topic.partitions for s in p.segments]
    newest.sort(key=lambda pair: (pair[1].last_ms or 0, pair[1].base), reverse=True)
    return TopicMap(
        topic=topic,
        link=topic_link(topic.name, browse=browse),
        facts=_facts(topic),
        rows=tuple(scales.row(p, readers.get((p.topic, p.partition), [])) for p in drawn),
        offset_axis=offset_axis(widest, before),
        time_axis=None if span is None else time_axis(*span),
        left=len(topic.partitions) - len(drawn),
        left_bytes=topic.bytes - sum(p.bytes for p in drawn),
        segments=newest[:SEGMENTS_MAX],
        segments_left=len(newest[SEGMENTS_MAX:]),
    )


@dataclass(frozen=True, slots=True)
class _Scales:
    """The scales of a topic's maps, which are the same for all rows.

    `before`: how many offsets before the log start are drawn. `widest`: how many offsets a row
    covers. `span`: the times at both ends of the map by time. `most`: the maximum blocks of a row.
    """

    before: int
    widest: int
    span: tuple[int, int] | None
    most: int
    codecs: bool
    tiered: bool

    def row(self, p: PartitionReport, readers: Sequence[ReaderReport]) -> MapRow:
        if p.error is not None:
            return MapRow(p, None, None)
        zero = p.log_start - self.before

        def share(offset: int) -> float:
            return max(0, offset - zero) / self.widest

        spans = [(share(s.base) * 100, share(s.end) * 100) for s in p.segments]
        marks = [mark(share(p.log_start), "start", f"log start {p.log_start:,}")]
        marks += [
            mark(share(r.offset), READER, f"{r.text} has read up to {r.offset:,}")
            for r in readers[:_MARKS]
            if r.offset is not None
        ]
        return MapRow(p, self._strip("offset", p, p.segments, spans, marks), self._by_time(p))

    def _by_time(self, p: PartitionReport) -> Strip | None:
        if self.span is None:
            return None
        low, high = self.span
        dated = [
            ((begin or 0, s.last_ms), s)
            for s, begin in zip(p.segments, begins(p.segments), strict=True)
            if s.last_ms is not None
        ]
        dated.sort(key=lambda pair: (pair[0][0], pair[1].base))
        spans = [
            (_percent((first - low) / (high - low)), _percent((last - low) / (high - low)))
            for (first, last), _ in dated
        ]
        return self._strip("time", p, [s for _, s in dated], spans)

    def _strip(
        self,
        axis: str,
        p: PartitionReport,
        segments: Sequence[SegmentReport],
        spans: Sequence[tuple[float, float]],
        marks: Sequence[Mark] = (),
    ) -> Strip:
        """Return the strip of a partition, without an empty active segment."""
        pairs = [
            (s, span) for s, span in zip(segments, spans, strict=True)
            if s.bytes or s is not p.segments[-1]
        ]  # fmt: skip
        found = blocks([s for s, _ in pairs], [span for _, span in pairs], self.most)
        return strip(
            found, f"{p.name}: segments by {axis}", marks,
            codecs=self.codecs, tiered=self.tiered, start=p.log_start,
        )  # fmt: skip


def _facts(topic: TopicReport) -> str:
    segments = topic.segments
    codecs = ", ".join("uncompressed" if c == "none" else c for c in codecs_of(segments))
    parts = [
        plural(len(topic.partitions), "partition"), plural(len(segments), "segment"),
        size_text(topic.bytes), codecs,
    ]  # fmt: skip
    return " · ".join(part for part in parts if part)


def _before(p: PartitionReport) -> int:
    """Return how many offsets of the first segment are before the log start.

    Retention and record deletion raise the log start within a segment, which is deleted as a whole
    later.
    """
    held = [s for s in p.segments if s.end > p.log_start]
    return max(0, p.log_start - held[0].base) if held else 0


def _time_span(drawn: Sequence[PartitionReport], now_ms: int) -> tuple[int, int] | None:
    """Return the (start, end) of a topic's time axis in whole seconds.

    Times more than a day in the future are drawn at the right end: a wrong timestamp would compress
    all other segments to a point.
    """
    dated = [s for p in drawn for s in p.segments if s.last_ms is not None]
    if not dated:
        return None
    latest = now_ms + DAY_MS
    usual = [s.last_ms for s in dated if s.last_ms is not None and s.last_ms <= latest]
    high = max(usual, default=latest)
    low = min((s.since_ms for s in dated if s.since_ms is not None), default=high)
    low = min(low, high) // 1000 * 1000
    return low, max(-(-high // 1000) * 1000, low + 1000)


def _percent(share: float) -> float:
    return min(1.0, max(0.0, share)) * 100
