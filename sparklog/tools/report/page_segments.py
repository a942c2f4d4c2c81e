"""The section of segments: a map of each topic by offset and by time, and the tables behind it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sparklog.tools.report.charts import EMPTY, UNKNOWN, blocks, strip
from sparklog.tools.report.html import Child, Html, el, foreign
from sparklog.tools.report.model import (
    DAY_MS,
    LogReport,
    PartitionReport,
    SegmentReport,
    TopicReport,
    Where,
)
from sparklog.tools.report.page_parts import (
    Column,
    axis,
    chip,
    figure,
    folded,
    legend,
    note,
    section,
    table,
)
from sparklog.tools.report.segments import codecs_of
from sparklog.tools.report.units import (
    NONE,
    axis_time_text,
    number,
    plural,
    size,
    size_text,
    time_text,
)

TOPICS_MAX: Final = 24  # drawn; the others are rows of a table
ROWS_MAX: Final = 16  # partitions drawn of a topic
TABLE_MAX: Final = 60  # rows of a table
SEGMENTS_MAX: Final = 48  # rows of the table of a topic's segments
_BLOCKS: Final = 4000  # of the whole page, in each of the two maps
_BLOCKS_A_ROW: Final = 160
_MARKS: Final = 8  # readers of a partition
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
WHERE: Final = {
    Where.LOCAL: "local only",
    Where.BOTH: "local, with a copy",
    Where.REMOTE: "remote only",
}
Spans = Callable[[SegmentReport], tuple[float, float]]
Positions = dict[tuple[str | None, int | None], list[tuple[int, str]]]


def segments_section(report: LogReport) -> Html:
    """The maps of the largest topics; the rest in words."""
    topics = sorted(report.topics, key=lambda t: -t.bytes)
    shown = [t for t in topics[:TOPICS_MAX] if t.bytes or any(p.error for p in t.partitions)]
    rows = sum(min(len(t.partitions), ROWS_MAX) for t in shown)
    most = max(8, min(_BLOCKS_A_ROW, _BLOCKS // max(rows, 1)))
    rest = [t for t in topics if t not in shown]
    content: list[Child] = [_legend(report)]
    at = _positions(report)
    content += [_topic(topic, report.time_ms, most, at) for topic in shown]
    if rest:
        content.append(folded(_rest_words(rest), _rest_table(rest), key="segments-rest"))
    if not report.topics:
        content.append(note("This log has no topics yet."))
    return section("segments", "Segments", content)


def _legend(report: LogReport) -> Html:
    held = {s.where for t in report.topics for s in t.segments}
    codecs = {s.codec or UNKNOWN for t in report.topics for s in t.segments if s.bytes}
    entries: list[tuple[str, Child]] = [(f"w-{w}", what) for w, what in WHERE.items() if w in held]
    entries += [(f"c-{c}", c if c != "none" else "uncompressed") for c in CODECS if c in codecs]
    if UNKNOWN in codecs:
        entries.append((f"c-{UNKNOWN}", "codec not read: remote"))
    if any(not s.bytes for t in report.topics for p in t.partitions for s in p.segments[:-1]):
        entries.append((EMPTY, "empty, all compacted away"))
    if report.readers:
        entries.append(("mark", "a registered reader"))
    return el("div", legend(entries), note(
        "A block is a segment, the line below it the codec of its first batch. Each row is a "
        "partition: by offset it begins at its log start, and rows of a topic share one scale."
    ))  # fmt: skip


def _positions(report: LogReport) -> Positions:
    """Where registered readers are, by partition."""
    found: Positions = {}
    for reader in report.readers:
        if reader.offset is not None and not reader.expired:
            key = reader.topic, reader.partition
            found.setdefault(key, []).append((reader.offset, reader.group))
    return found


def _topic(topic: TopicReport, now_ms: int, most: int, at: Positions) -> Html:
    drawn = sorted(topic.partitions, key=lambda p: (-p.bytes, p.partition))[:ROWS_MAX]
    drawn.sort(key=lambda p: p.partition)
    left = len(topic.partitions) - len(drawn)
    segments = list(topic.segments)
    more: Child = None
    if left:
        rest = sum(p.bytes for p in topic.partitions) - sum(p.bytes for p in drawn)
        more = note(f"{left} smaller partitions, {size_text(rest)} in all, are not drawn.")
    return el(
        "article",
        el("h3", foreign(topic.name), " ", _chips(topic)),
        el("p", _facts(topic, segments), class_="facts"),
        el("div", _by_offset(drawn, most, at), _by_time(drawn, now_ms, most), class_="pair"),
        more,
        folded("Partitions as a table", _partitions_table(topic), key=f"p-{topic.name}"),
        folded("Newest segments as a table", _segments_table(topic), key=f"s-{topic.name}"),
    )


def _chips(topic: TopicReport) -> list[Html]:
    found = []
    if topic.config is not None and "compact" in topic.cleanup_policy:
        found.append(chip(f"cleanup.policy={','.join(topic.cleanup_policy)}"))
    if topic.remote_storage_enable:
        found.append(chip("remote.storage.enable"))
    return found


def _facts(topic: TopicReport, segments: Sequence[SegmentReport]) -> str:
    codecs = ", ".join("uncompressed" if c == "none" else c for c in codecs_of(segments))
    parts = [
        plural(len(topic.partitions), "partition"), plural(len(segments), "segment"),
        size_text(topic.bytes), codecs,
    ]  # fmt: skip
    return " · ".join(part for part in parts if part)


def _by_offset(partitions: Sequence[PartitionReport], most: int, at: Positions) -> Html:
    widest = max([1, *(p.offsets for p in partitions)])
    rows = []
    for p in partitions:

        def place(s: SegmentReport, start: int = p.log_start) -> tuple[float, float]:
            return max(0, s.base - start) / widest * 100, max(0, s.end - start) / widest * 100

        live = [s for s in p.segments if s.end > p.log_start]
        label = f"{p.topic}-{p.partition}: segments by offset"
        marks = [
            (max(0, offset - p.log_start) / widest * 100, f"{group} has read up to {offset:,}")
            for offset, group in at.get((p.topic, p.partition), [])[:_MARKS]
        ]
        rows.append(_row(p, live, place, most, label, marks))
    labels: list[Child] = ["log start", el("span", "+", number(widest), " offsets")]
    return figure("By offset", el("div", rows, class_="rows"), axis(labels))


def _by_time(partitions: Sequence[PartitionReport], now_ms: int, most: int) -> Html:
    dated = [s for p in partitions for s in p.segments if s.last_ms is not None]
    low, high = _time_span(dated, now_ms)
    rows = []
    for p in partitions:

        def place(s: SegmentReport) -> tuple[float, float]:
            first, last = s.since_ms or 0, s.last_ms or 0
            return _clip((first - low) / (high - low)), _clip((last - low) / (high - low))

        mine = [s for s in p.segments if s.last_ms is not None]
        mine.sort(key=lambda s: (s.since_ms or 0, s.base))
        rows.append(_row(p, mine, place, most, f"{p.topic}-{p.partition}: segments by time"))
    if not dated:
        return figure("By time of the records", note("No record here has a time."))
    ends = [el("span", axis_time_text(t, high - low), title=f"{time_text(t)} UTC")
            for t in (low, high)]  # fmt: skip
    return figure("By time of the records", el("div", rows, class_="rows"), axis(ends))


def _time_span(dated: Sequence[SegmentReport], now_ms: int) -> tuple[int, int]:
    """The axis of a topic: what is dated far ahead stands at its right end."""
    latest = now_ms + DAY_MS
    usual = [s.last_ms for s in dated if s.last_ms is not None and s.last_ms <= latest]
    high = max(usual, default=latest)
    low = min((s.since_ms for s in dated if s.since_ms is not None), default=high)
    low = min(low, high)
    return low, max(high, low + 1000)


def _clip(share: float) -> float:
    return min(1.0, max(0.0, share)) * 100


def _row(
    p: PartitionReport,
    segments: Sequence[SegmentReport],
    place: Spans,
    most: int,
    label: str,
    marks: Sequence[tuple[float, str]] = (),
) -> list[Html]:
    name = el("span", str(p.partition), class_="who", title=f"{p.topic}-{p.partition}")
    if p.error is not None:
        return [name, el("span", "can't be read", class_="bad")]
    held = [s for s in segments if s.bytes or s is not p.segments[-1]]
    return [name, strip(blocks(held, [place(s) for s in held], most), label, marks)]


def _partitions_table(topic: TopicReport) -> list[Child]:
    columns = [
        Column("partition", "n"), Column("log start", "n"), Column("high watermark", "n"),
        Column("segments", "n"), Column("local", "n"), Column("remote", "n"),
        Column("oldest record"), Column("newest record"),
    ]  # fmt: skip
    shown = topic.partitions[:TABLE_MAX]
    rows = [
        (
            p.partition, number(p.log_start), number(p.end), len(p.segments), size(p.local_bytes),
            size(p.remote_bytes),
            time_text(min(_known(s.since_ms for s in p.segments), default=None)),
            time_text(max(_known(s.last_ms for s in p.segments), default=None)),
        )
        for p in shown
    ]  # fmt: skip
    return [table(f"Partitions of {topic.name}", columns, rows), _left(topic.partitions, shown)]


def _segments_table(topic: TopicReport) -> list[Child]:
    columns = [
        Column("partition and base offset", "n"), Column("end", "n"), Column("size", "n"),
        Column("where"), Column("codec"), Column("first record"), Column("last record"),
    ]  # fmt: skip
    found = [(p.partition, s) for p in topic.partitions for s in p.segments]
    found.sort(key=lambda pair: (pair[1].last_ms or 0, pair[1].base), reverse=True)
    shown = found[:SEGMENTS_MAX]
    rows = [
        (
            el("span", f"{partition} / ", number(s.base)), number(s.end), size(s.bytes),
            WHERE[s.where], s.codec or NONE, time_text(s.first_ms),
            el("span", time_text(s.last_ms), " (of its file)" if s.time_of_file else None),
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
    return f"{len(rest)} more topics, {size_text(sum(t.bytes for t in rest))}"


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
