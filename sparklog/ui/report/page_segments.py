"""The section of segments: a map of each topic by offset and by time, and tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sparklog.html import Child, Html, el, foreign
from sparklog.quantities import DAY_MS
from sparklog.ui.report.charts import (
    EMPTY,
    READER,
    UNKNOWN,
    blocks,
    offset_axis,
    strip,
    time_axis,
)
from sparklog.ui.report.growth import begins
from sparklog.ui.report.model import (
    LogReport,
    PartitionReport,
    SegmentReport,
    TopicReport,
)
from sparklog.ui.report.page_labels import WHERE, has_tier, topic_name
from sparklog.ui.report.page_parts import (
    Column,
    chip,
    figure,
    folded,
    legend,
    note,
    section,
    span_of,
    table,
)
from sparklog.ui.report.segments import codecs_of
from sparklog.ui.units import NONE, number, plural, size, size_text, stamp

TOPICS_MAX: Final = 24  # drawn; the others are rows of a table
_OPEN_MAX: Final = 8  # of these are visible at once
ROWS_MAX: Final = 16  # partitions drawn of a topic
TABLE_MAX: Final = 60  # rows of a table
SEGMENTS_MAX: Final = 48  # rows of the table of a topic's segments
_BLOCKS: Final = 4000  # of the whole page, in each of the two maps
_BLOCKS_A_ROW: Final = 160
_MARKS: Final = 8  # readers of a partition
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
Spans = Callable[[SegmentReport], tuple[float, float]]
Positions = dict[tuple[str | None, int | None], list[tuple[int, str]]]


def segments_section(report: LogReport, *, browse: bool) -> Html:
    """The maps of the largest topics; the rest in words. `browse`: names link to topics' pages."""
    topics = sorted(report.topics, key=lambda t: -t.bytes)
    shown = [t for t in topics[:TOPICS_MAX] if t.bytes or any(p.error for p in t.partitions)]
    if not shown:
        return section("segments", "Segments", note("No topic holds a record."))
    rows = sum(min(len(t.partitions), ROWS_MAX) for t in shown)
    most = max(8, min(_BLOCKS_A_ROW, _BLOCKS // max(rows, 1)))
    rest = [t for t in topics if t not in shown]
    content: list[Child] = [_legend(report, shown)]
    at = _positions(report)
    articles = [_topic(report, topic, most, at, browse) for topic in shown]
    content += articles[:_OPEN_MAX]
    if len(articles) > _OPEN_MAX:
        left = shown[_OPEN_MAX:]
        words = f"{plural(len(left), 'smaller topic')}, {size_text(sum(t.bytes for t in left))}"
        content.append(folded(words, articles[_OPEN_MAX:], key="segments-more"))
    if rest:
        content.append(folded(_rest_words(rest), _rest_table(rest), key="segments-rest"))
    return section("segments", "Segments", content)


def _legend(report: LogReport, shown: Sequence[TopicReport]) -> Html:
    held = {s.where for t in shown for s in t.segments}
    mixed = [t for t in shown if _is_mixed(t)]
    codecs = {s.codec or UNKNOWN for t in mixed for s in t.segments if s.bytes}
    entries: list[tuple[str, Child]] = []
    if has_tier(report):
        entries += [(f"w-{w}", what) for w, what in WHERE.items() if w in held]
    entries += [(f"c-{c}", c if c != "none" else "uncompressed") for c in CODECS if c in codecs]
    if UNKNOWN in codecs:
        entries.append((f"c-{UNKNOWN}", "codec not read: remote"))
    if any(not s.bytes for t in shown for p in t.partitions for s in p.segments[:-1]):
        entries.append((EMPTY, "empty, all compacted away"))
    elif any(s.base < p.log_start for t in shown for p in t.partitions for s in p.segments):
        entries.append((EMPTY, "before the log start"))
    entries.append(("start", "log start"))
    if report.readers:
        entries.append((READER, "a registered reader"))
    line = " The line below a block is the codec of its first batch." if mixed else ""
    return el("div", legend(entries), note(
        "A block is a segment, a row a partition. By offset, rows stand between their log start "
        f"and their end, and those of a topic share one scale.{line}"
    ))  # fmt: skip


def _is_mixed(topic: TopicReport) -> bool:
    """Whether its segments have several codecs; a single one is named in words."""
    return len(codecs_of(tuple(topic.segments))) > 1


def _positions(report: LogReport) -> Positions:
    """The positions of registered readers, by partition."""
    found: Positions = {}
    for reader in report.readers:
        if reader.offset is not None and not reader.expired:
            key = reader.topic, reader.partition
            found.setdefault(key, []).append((reader.offset, reader.text))
    return found


def _topic(report: LogReport, topic: TopicReport, most: int, at: Positions, browse: bool) -> Html:
    drawn = sorted(topic.partitions, key=lambda p: (-p.bytes, p.partition))[:ROWS_MAX]
    drawn.sort(key=lambda p: p.partition)
    left = len(topic.partitions) - len(drawn)
    segments = list(topic.segments)
    more: Child = None
    if left:
        rest = sum(p.bytes for p in topic.partitions) - sum(p.bytes for p in drawn)
        more = note(f"{left} smaller partitions, {size_text(rest)} in all, are not drawn.")
    tiered = has_tier(report)
    rows = _Rows(topic, drawn, most, tiered=tiered)
    return el(
        "article",
        el("h3", topic_name(topic.name, browse=browse), " ", _chips(topic)),
        el("p", _facts(topic, segments), class_="facts"),
        el("div", rows.by_offset(at), rows.by_time(report.time_ms), class_="pair"),
        more,
        folded("Partitions as a table", _partitions_table(topic, tiered), key=f"p-{topic.name}"),
        folded("Newest segments as a table", _segments_table(topic, tiered), key=f"s-{topic.name}"),
    )


def _chips(topic: TopicReport) -> list[Html]:
    found = []
    if topic.config is not None and "compact" in topic.cleanup_policy:
        found.append(chip("compacted"))
    if topic.remote_storage_enable:
        found.append(chip("copied to remote storage"))
    return found


def _facts(topic: TopicReport, segments: Sequence[SegmentReport]) -> str:
    codecs = ", ".join("uncompressed" if c == "none" else c for c in codecs_of(segments))
    parts = [
        plural(len(topic.partitions), "partition"), plural(len(segments), "segment"),
        size_text(topic.bytes), codecs,
    ]  # fmt: skip
    return " · ".join(part for part in parts if part)


class _Rows:
    """The maps of a topic: a row for each of `drawn`, of about `most` blocks."""

    def __init__(
        self, topic: TopicReport, drawn: Sequence[PartitionReport], most: int, *, tiered: bool
    ) -> None:
        self._drawn, self._most, self._tiered = drawn, most, tiered
        self._codecs = _is_mixed(topic)

    def by_offset(self, at: Positions) -> Html:
        """The map by offset, from a log start to its end; offsets before the start stay visible."""
        before = max((_before(p) for p in self._drawn), default=0)
        widest = max([1, *(p.offsets for p in self._drawn)]) + before
        rows: list[Child] = [
            el("span", class_="head"), el("span", "log start", class_="head from"),
            el("span", "By offset", class_="head"), el("span", "end", class_="head"),
        ]  # fmt: skip
        for p in self._drawn:

            def place(s: SegmentReport, zero: int = p.log_start - before) -> tuple[float, float]:
                return max(0, s.base - zero) / widest * 100, max(0, s.end - zero) / widest * 100

            marks = [(before / widest * 100, f"log start {p.log_start:,}", "start")]
            marks += [
                (max(0, offset - p.log_start + before) / widest * 100,
                 f"{group} has read up to {offset:,}", READER)
                for offset, group in at.get((p.topic, p.partition), [])[:_MARKS]
            ]  # fmt: skip
            label = f"{p.topic}-{p.partition}: segments by offset"
            picture = self._strip(p, p.segments, place, label, marks)
            if picture is None:
                rows += [_partition_label(p), _unreadable()]
                continue
            first = el("span", number(p.log_start), class_="from")
            rows += [_partition_label(p), first, picture, el("span", number(p.end), class_="to")]
        rows.append(offset_axis(widest, before))
        return el("div", rows, class_="rows map", role="group", aria_label="By offset")

    def by_time(self, now_ms: int) -> Html:
        """The map by time."""
        dated = [s for p in self._drawn for s in p.segments if s.last_ms is not None]
        if not dated:
            return figure("By time of the records", note("No record here has a time."))
        low, high = _time_span(dated, now_ms)
        rows: list[Child] = []
        for p in self._drawn:
            begin = dict(zip((s.base for s in p.segments), begins(p.segments), strict=True))

            def place(
                s: SegmentReport, begin: dict[int, int | None] = begin
            ) -> tuple[float, float]:
                first, last = begin[s.base] or 0, s.last_ms or 0
                return _clip((first - low) / (high - low)), _clip((last - low) / (high - low))

            mine = [s for s in p.segments if s.last_ms is not None]
            mine.sort(key=lambda s: (begin[s.base] or 0, s.base))
            label = f"{p.topic}-{p.partition}: segments by time"
            picture = self._strip(p, mine, place, label)
            rows += [_partition_label(p), _unreadable() if picture is None else picture]
        rows.append(time_axis(low, high))
        return figure(
            "By time of the records", el("div", rows, class_="rows plain"), more=span_of(low, high)
        )

    def _strip(
        self,
        p: PartitionReport,
        segments: Sequence[SegmentReport],
        place: Spans,
        label: str,
        marks: Sequence[tuple[float, str, str]] = (),
    ) -> Html | None:
        """The blocks of a partition, or None if it can't be read."""
        if p.error is not None:
            return None
        held = [s for s in segments if s.bytes or s is not p.segments[-1]]
        found = blocks(held, [place(s) for s in held], self._most)
        return strip(
            found, label, marks, codecs=self._codecs, tiered=self._tiered, start=p.log_start
        )


def _before(p: PartitionReport) -> int:
    """Offsets before the log start that are still in its first segment."""
    held = [s for s in p.segments if s.end > p.log_start]
    return max(0, p.log_start - held[0].base) if held else 0


def _partition_label(p: PartitionReport) -> Html:
    return el("span", str(p.partition), class_="who", title=f"{p.topic}-{p.partition}")


def _unreadable() -> Html:
    return el("span", "can't be read", class_="bad")


def _time_span(dated: Sequence[SegmentReport], now_ms: int) -> tuple[int, int]:
    """The axis of a topic; times far in the future are at its right end."""
    latest = now_ms + DAY_MS
    usual = [s.last_ms for s in dated if s.last_ms is not None and s.last_ms <= latest]
    high = max(usual, default=latest)
    low = min((s.since_ms for s in dated if s.since_ms is not None), default=high)
    low = min(low, high)
    return low, max(high, low + 1000)


def _clip(share: float) -> float:
    return min(1.0, max(0.0, share)) * 100


def _partitions_table(topic: TopicReport, tiered: bool) -> list[Child]:
    places = [Column("local", "n"), Column("remote", "n")] if tiered else [Column("size", "n")]
    columns = [
        Column("partition", "n"), Column("log start", "n"), Column("high watermark", "n"),
        Column("segments", "n"), *places, Column("oldest record", "time"),
        Column("newest record", "time"),
    ]  # fmt: skip
    shown = topic.partitions[:TABLE_MAX]
    rows = [
        (
            p.partition, number(p.log_start), number(p.end), len(p.segments),
            *((size(p.local_bytes), size(p.remote_bytes)) if tiered else (size(p.bytes),)),
            stamp(min(_known(s.since_ms for s in p.segments), default=None)),
            stamp(max(_known(s.last_ms for s in p.segments), default=None)),
        )
        for p in shown
    ]  # fmt: skip
    return [table(f"Partitions of {topic.name}", columns, rows), _left(topic.partitions, shown)]


def _segments_table(topic: TopicReport, tiered: bool) -> list[Child]:
    columns = [
        Column("partition and base offset", "n"), Column("end", "n"), Column("size", "n"),
        *([Column("where")] if tiered else []), Column("codec"), Column("first record", "time"),
        Column("last record", "time"),
    ]  # fmt: skip
    found = [(p.partition, s) for p in topic.partitions for s in p.segments]
    found.sort(key=lambda pair: (pair[1].last_ms or 0, pair[1].base), reverse=True)
    shown = found[:SEGMENTS_MAX]
    rows = [
        (
            el("span", f"{partition} / ", number(s.base)), number(s.end), size(s.bytes),
            *((WHERE[s.where],) if tiered else ()), s.codec or NONE, stamp(s.first_ms),
            el("span", stamp(s.last_ms), " (of its file)" if s.time_of_file else None),
        )
        for partition, s in shown
    ]  # fmt: skip
    title = f"Segments of {topic.name}, the newest first"
    return [table(title, columns, rows), _left(found, shown)]


def _known(times: Iterable[int | None]) -> list[int]:
    return [time for time in times if time is not None]


def _left(found: Sequence[object], shown: Sequence[object]) -> Child:
    left = len(found) - len(shown)
    return note(f"{left} more are in the output of --json.") if left > 0 else None


def _rest_words(rest: Sequence[TopicReport]) -> str:
    return f"{plural(len(rest), 'more topic')}, {size_text(sum(t.bytes for t in rest))}"


def _rest_table(rest: Sequence[TopicReport]) -> list[Child]:
    columns = [
        Column("topic"), Column("partitions", "n"), Column("segments", "n"), Column("size", "n"),
        Column("offsets", "n"),
    ]  # fmt: skip
    shown = rest[:TABLE_MAX]
    rows = [
        (
            foreign(t.name), len(t.partitions), sum(len(p.segments) for p in t.partitions),
            size(t.bytes), number(sum(p.offsets for p in t.partitions)),
        )
        for t in shown
    ]  # fmt: skip
    return [table("Topics that are not drawn", columns, rows), _left(rest, shown)]
