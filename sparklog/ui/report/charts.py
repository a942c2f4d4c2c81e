"""Geometry of the charts that `templates/charts.html` draws as SVG.

The browser stretches a chart to any width. Labels are HTML beside the SVG, so that they are not
stretched. Horizontal positions are percentages, or shares from 0 to 1 for ticks. Styles are classes
of the style sheet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.quantities import MINUTE_MS
from sparklog.ui.report.model import SegmentReport, Where
from sparklog.ui.report.scales import Scale, TimeTick, scale, time_ticks
from sparklog.ui.units import size_text, tick_text, time_text

# Percentages of the width of a strip:
_WIDE: Final = 0.8  # wider blocks are separated by a gap
_GAP: Final = 0.12
_THIN: Final = 0.35  # narrower blocks would be invisible: they are merged, or drawn this wide
# Units of an SVG:
_WIDTH: Final = 1000  # of a chart
_HEIGHT: Final = 100
_COLUMN: Final = 0.86  # the width of a column as a share of its bin
_CUT_NAMED: Final = 3  # how many values beyond the scale the note below a chart names
_SPARK: Final = 20  # the height of a sparkline
_SPARK_POINTS: Final = 30  # the maximum points of a sparkline
UNKNOWN: Final = "unknown"
EMPTY: Final = "w-empty"
READER: Final = "reader"


@dataclass(slots=True)
class Block:
    """A rectangle for a segment or several narrow segments. `x` and `end` are percentages."""

    x: float
    end: float
    segments: list[SegmentReport]

    @property
    def width(self) -> float:
        return self.end - self.x

    def holds(self, segment: SegmentReport) -> bool:
        """Return whether a segment would have the same style as the last segment of the block."""
        last = self.segments[-1]
        looks = [(s.where, s.codec, not s.bytes) for s in (segment, last)]
        return looks[0] == looks[1]


@dataclass(frozen=True, slots=True)
class DrawnBlock:
    """A block of a strip. `codec`: the style of the line below the block that shows the codec."""

    x: float
    width: float
    style: str
    codec: str | None
    title: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line across a strip, such as the log start or a reader's position."""

    x: float
    style: str
    title: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A row of blocks. `has_codecs`: the blocks have lines below them that show codecs."""

    label: str
    blocks: tuple[DrawnBlock, ...]
    marks: tuple[Mark, ...]
    has_codecs: bool


@dataclass(frozen=True, slots=True)
class BarPart:
    """A coloured part of a bar; `x` and `width` are percentages."""

    x: float
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar of parts. `mark`: the position of a line across the bar, or None."""

    label: str
    parts: tuple[BarPart, ...]
    mark: float | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis.

    `share`: the position as a share of the length. `time`: the time, if the axis is a time axis.
    """

    words: str
    share: float
    time: TimeTick | None = None

    @property
    def edge(self) -> str | None:
        """The style of a tick near an end of the axis, which keeps the label within the chart."""
        return "first" if self.share < 0.06 else "last" if self.share > 0.94 else None

    @property
    def y(self) -> float:
        """The vertical position in a chart, from the top."""
        return round(_HEIGHT * (1 - self.share), 2)


@dataclass(frozen=True, slots=True)
class Axis:
    """The ticks of an axis. `span_ms`: the times at both ends of a time axis."""

    ticks: tuple[Tick, ...]
    span_ms: tuple[int, int] | None = None

    @property
    def is_short(self) -> bool:
        """Whether the axis is so short that the times at both ends need seconds."""
        return self.span_ms is not None and self.span_ms[1] - self.span_ms[0] < 10 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a chart. `is_cut`: the value exceeds the scale; a gap near the top shows that."""

    x: float
    y: float
    width: float
    height: float
    title: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Area:
    """A filled outline, or a line without a fill, as an SVG path."""

    path: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of columns or areas over time, with a time axis and a value axis.

    `cut`: the largest values that exceed the scale, as (text, time). `cut_more`: how many further
    values exceed the scale.
    """

    label: str
    ticks: tuple[Tick, ...]
    axis: Axis
    columns: tuple[Column, ...] = ()
    areas: tuple[Area, ...] = ()
    cut: tuple[tuple[str, int], ...] = ()
    cut_more: int = 0


@dataclass(frozen=True, slots=True)
class Spark:
    """A small chart without axes (sparkline).

    `line`: the points as an SVG path. `cuts`: the x positions of values that exceed the scale.
    """

    label: str
    width: int
    line: str
    cuts: tuple[float, ...]


def blocks(
    segments: Sequence[SegmentReport], spans: Sequence[tuple[float, float]], most: int
) -> list[Block]:
    """Return the blocks that show `segments`. Adjacent narrow segments share a block.

    Args:
        segments: The segments in ascending order.
        spans: The (start, end) of each segment as percentages of the width.
        most: About how many blocks to return at most.
    """
    narrow = max(_THIN, 100 / max(most, 1)) if len(segments) > most else _THIN
    found: list[Block] = []
    for segment, (x, end) in zip(segments, spans, strict=True):
        before = found[-1] if found else None
        # Similar segments share a block at twice the width, so differences stay visible longer.
        limit = narrow if before is not None and before.holds(segment) else narrow / 2
        if before is not None and end - before.x < limit:
            before.end = max(before.end, end)
            before.segments.append(segment)
        else:
            found.append(Block(x, end, [segment]))
    return found


def strip(
    found: Sequence[Block],
    label: str,
    marks: Sequence[Mark] = (),
    *,
    codecs: bool = False,
    tiered: bool = True,
    start: int = 0,
) -> Strip:
    """Return the strip of some blocks.

    Args:
        found: The blocks.
        label: The description of the strip for screen readers.
        marks: Lines across the strip.
        codecs: Whether a line below each block shows the codec.
        tiered: Whether colours distinguish local and remote segments.
        start: The log start offset. Blocks before it are pale.
    """

    def drawn(block: Block) -> DrawnBlock:
        gap = _GAP if block.width > _WIDE else 0.0
        most = max(block.segments, key=lambda s: s.bytes)
        is_pale = not most.bytes or block.segments[-1].end <= start
        return DrawnBlock(
            x=round(block.x, 2),
            width=round(max(block.width - gap, _THIN), 2),
            style=EMPTY if is_pale else f"w-{most.where if tiered else Where.LOCAL}",
            codec=f"c-{most.codec or UNKNOWN}" if codecs and most.bytes else None,
            title=_description(block.segments, tiered=tiered),
        )

    return Strip(label, tuple(map(drawn, found)), tuple(marks), codecs)


def mark(share: float, style: str, title: str) -> Mark:
    """Return a mark at `share` (0 to 1) of a strip's width."""
    return Mark(round(min(share * 100, 99.8), 2), style, title)


def _description(segments: Sequence[SegmentReport], *, tiered: bool) -> str:
    first, last = segments[0], segments[-1]
    codecs = sorted({s.codec or "codec not read" for s in segments})
    places = f", {'/'.join(sorted({str(s.where) for s in segments}))}" if tiered else ""
    many = f"{len(segments)} segments, " if len(segments) > 1 else ""
    times = [s.last_ms for s in segments if s.last_ms is not None]
    begins = [s.since_ms for s in segments if s.since_ms is not None]
    when = f", {time_text(min(begins))} to {time_text(max(times))}" if times and begins else ""
    return (
        f"{many}offsets [{first.base:,}, {last.end:,}), {size_text(sum(s.bytes for s in segments))}"
        f", {'/'.join(codecs)}{places}{when}"
    )


def bar(parts: Sequence[tuple[str, float]], label: str, *, mark: float | None = None) -> Bar:
    """Return a horizontal bar.

    Args:
        parts: The (style, share of the width from 0 to 1) of each part.
        label: The description of the bar for screen readers.
        mark: The position of a line across the bar, as a share of the width.
    """
    drawn = []
    x = 0.0
    for style, share in parts:
        width = max(0.0, min(share, 1 - x))
        if width > 0:
            drawn.append(BarPart(round(x * 100, 2), round(max(width, 0.006) * 100, 2), style))
        x += width
    return Bar(label, tuple(drawn), None if mark is None else round(min(mark, 0.995) * 100, 2))


def column_chart(
    label: str,
    edges_ms: Sequence[int],
    values: Sequence[int],
    words: Callable[[int], str],
    *,
    binary: bool = False,
) -> Chart:
    """Return a chart with a column per bin.

    A few columns that would flatten the others are cut off.

    Args:
        label: The description of the chart for screen readers.
        edges_ms: The bounds of the bins: the start of each bin, and the end of the last bin.
        values: The value of each bin.
        words: Formats a value.
        binary: Whether the values are sizes in bytes.
    """
    limit = scale(values, binary=binary, cuts=True)
    bins = list(zip(edges_ms, values, strict=False))
    step = _WIDTH / max(len(values), 1)

    def column(at: int, time_ms: int, value: int) -> Column:
        # At least a thin line: a small value must not look like no value.
        height = max(limit.share(value) * _HEIGHT, 0.8)
        return Column(
            x=round(at * step, 1),
            y=round(_HEIGHT - height, 1),
            width=round(step * _COLUMN, 1),
            height=round(height, 1),
            title=f"{time_text(time_ms)}: {words(value)}",
            is_cut=value > limit.top,
        )

    cut = sorted(((n, t) for t, n in bins if n > limit.top), key=lambda pair: -pair[0])
    return Chart(
        label=label,
        ticks=_value_ticks(limit, binary=binary),
        axis=time_axis(edges_ms[0], edges_ms[-1]),
        columns=tuple(column(at, t, n) for at, (t, n) in enumerate(bins) if n > 0),
        cut=tuple((words(n), t) for n, t in cut[:_CUT_NAMED]),
        cut_more=max(len(cut) - _CUT_NAMED, 0),
    )


def area_chart(
    label: str,
    edges_ms: Sequence[int],
    series: Mapping[str, Sequence[float]],
    *,
    binary: bool = False,
) -> Chart:
    """Return a chart of stacked areas. A single area has a line at its top.

    Args:
        label: The description of the chart for screen readers.
        edges_ms: The times of the values.
        series: For each style, the values of an area. They must not decrease.
        binary: Whether the values are sizes in bytes.
    """
    limit = scale([sum(values[-1] for values in series.values())], binary=binary)
    floor = [0.0] * len(edges_ms)
    areas = []
    for style, values in series.items():
        ceiling = [low + value for low, value in zip(floor, values, strict=True)]
        outline = f"M{_points(ceiling, limit)}L{_points(floor, limit, back=True)}Z"
        areas.append(Area(outline, style))
        floor = ceiling
    if len(series) == 1:
        areas.append(Area(f"M{_points(floor, limit)}", "line"))
    return Chart(
        label=label,
        ticks=_value_ticks(limit, binary=binary),
        axis=time_axis(edges_ms[0], edges_ms[-1]),
        areas=tuple(areas),
    )


def _points(values: Sequence[float], limit: Scale, *, back: bool = False) -> str:
    step = _WIDTH / max(len(values) - 1, 1)
    points = [
        f"{at * step:.1f} {_HEIGHT - limit.share(value) * _HEIGHT:.2f}"
        for at, value in enumerate(values)
    ]
    return "L".join(points[::-1] if back else points)


def _value_ticks(limit: Scale, *, binary: bool) -> tuple[Tick, ...]:
    return tuple(_tick(tick_text(n, binary=binary), limit.share(n)) for n in limit.ticks)


def time_axis(low_ms: int, high_ms: int) -> Axis:
    """Return a time axis with ticks at round times in UTC.

    page.js moves the ticks to round times in the viewer's time zone.
    """
    span = max(high_ms - low_ms, 1)
    ticks = (
        _tick(each.words, (each.time_ms - low_ms) / span, each)
        for each in time_ticks(low_ms, high_ms)
    )
    return Axis(tuple(ticks), (low_ms, high_ms))


def offset_axis(widest: int, before: int = 0) -> Axis:
    """Return an axis of offsets relative to the log start.

    `widest`: the number of offsets along the axis. `before`: the number before the log start.
    """
    ticks = scale([widest - before], steps=3).ticks
    return Axis(tuple(
        _tick(f"+{tick_text(tick)}" if tick else "0", (tick + before) / widest) for tick in ticks
    ))  # fmt: skip


def _tick(words: str, share: float, time: TimeTick | None = None) -> Tick:
    return Tick(words, round(share, 4), time)


def spark(values: Sequence[float], label: str) -> Spark:
    """Return a sparkline of values over time. Values that would flatten the others are cut off."""
    group = -(-len(values) // _SPARK_POINTS)
    sums = [sum(values[at : at + group]) for at in range(0, len(values), group)]
    limit = scale(sums, cuts=True)
    heights = [f"{_SPARK - limit.share(value) * (_SPARK - 1):.1f}" for value in sums]
    line = "L".join(f"{at} {y}" for at, y in enumerate(heights))
    if len(sums) == 1:  # a path of one point draws nothing
        line += f"L1 {heights[0]}"
    cuts = tuple(at - 0.5 for at, value in enumerate(sums) if value > limit.top)
    return Spark(label, max(len(sums) - 1, 1), line, cuts)
