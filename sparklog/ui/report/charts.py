"""Charts as inline SVG.

They are stretched to any width, and all text is beside them as HTML, so that labels keep their
size. Colours are classes of the style sheet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.html import Child, Html, el
from sparklog.ui.report.model import SegmentReport, Where
from sparklog.ui.report.scales import Scale, scale, time_ticks
from sparklog.ui.units import iso_text, size_text, tick_text, time_text

_WIDE: Final = 0.8  # per cent: wider blocks are separated by a gap
_THIN: Final = 0.35  # per cent: narrower blocks are merged, or drawn this wide
_WIDTH: Final = 1000
_HEIGHT: Final = 100
_CUT_AT: Final = 8  # from the top
_SPARK: Final = 20  # its height
_SPARK_POINTS: Final = 30  # at most
UNKNOWN: Final = "unknown"
EMPTY: Final = "w-empty"
READER: Final = "reader"


@dataclass(slots=True)
class Block:
    """A rectangle for one segment or several narrow ones; `x` and `end` in per cent."""

    x: float
    end: float
    segments: list[SegmentReport]

    @property
    def width(self) -> float:
        return self.end - self.x

    def holds(self, segment: SegmentReport) -> bool:
        """Whether a segment looks like the others here."""
        last = self.segments[-1]
        looks = [(s.where, s.codec, not s.bytes) for s in (segment, last)]
        return looks[0] == looks[1]


def blocks(
    segments: Sequence[SegmentReport], spans: Sequence[tuple[float, float]], most: int
) -> list[Block]:
    """Return blocks for segments at `spans` (per cent), ascending; about `most` or a few more.

    Adjacent segments that are too narrow to be told apart become one block, similar ones first.
    """
    narrow = max(_THIN, 100 / max(most, 1)) if len(segments) > most else _THIN
    found: list[Block] = []
    for segment, (x, end) in zip(segments, spans, strict=True):
        before = found[-1] if found else None
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
    marks: Sequence[tuple[float, str, str]] = (),
    *,
    codecs: bool = False,
    tiered: bool = True,
    start: int = 0,
) -> Html:
    """A row of blocks, coloured by their place if the log is `tiered`.

    `marks`: lines across it, (per cent, words, class) each. `codecs`: a line below each block shows
    its codec. Blocks that end before the offset `start` are pale.
    """
    drawn: list[Child] = [el("title", label)]
    for block in found:
        gap = 0.12 if block.width > _WIDE else 0.0
        x, width = f"{block.x:.2f}%", f"{max(block.width - gap, _THIN):.2f}%"
        most = max(block.segments, key=lambda s: s.bytes)
        pale = not most.bytes or block.segments[-1].end <= start
        where = EMPTY if pale else f"w-{most.where if tiered else Where.LOCAL}"
        parts = [el("rect", x=x, width=width, y=0, height=11 if codecs else 14, class_=where)]
        if codecs and most.bytes:
            codec = f"c-{most.codec or UNKNOWN}"
            parts.append(el("rect", x=x, width=width, y=12, height=4, class_=codec))
        drawn.append(el("g", el("title", describe(block.segments, tiered=tiered)), parts))
    for at, words, name in marks:
        x = f"{min(at, 99.8):.2f}%"
        if name == READER:  # a path has no per cent, an svg does
            mark = el("svg", el("path", d="M-4 -3H6L1 3ZM0 3H2V14H0Z", class_=name), x=x)
        else:
            mark = el("rect", x=x, width=2, y=-2, height=18, class_=name)
        drawn.append(el("g", el("title", words), mark))
    return el("svg", drawn, class_="strip", role="img", aria_label=label)


def describe(segments: Sequence[SegmentReport], *, tiered: bool = True) -> str:
    """Describe the segments of a block in one line."""
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


def bar(parts: Sequence[tuple[str, float]], label: str, *, mark: float | None = None) -> Html:
    """A bar of parts, (class, share of the width 0..1) each; `mark`: a line across it."""
    drawn: list[Child] = [el("title", label)]
    x = 0.0
    for name, share in parts:
        width = max(0.0, min(share, 1 - x))
        if width > 0:
            shown = max(width, 0.006)
            drawn.append(el("rect", x=_percent(x), width=_percent(shown), height=10, class_=name))
        x += width
    if mark is not None:
        drawn.append(el("rect", x=_percent(min(mark, 0.995)), width=2, height=10, class_="mark"))
    return el("svg", drawn, class_="bar", role="img", aria_label=label)


def columns(values: Sequence[float], titles: Sequence[str], limit: Scale, label: str) -> Html:
    """A column for each bin.

    One that is higher than the scale is cut: a gap near its top shows that.
    """
    width = _WIDTH / max(len(values), 1)
    drawn: list[Child] = [el("title", label), *_rules(limit)]
    for at, (value, title) in enumerate(zip(values, titles, strict=True)):
        if value <= 0:
            continue
        high = max(limit.share(value) * _HEIGHT, 0.8)
        x, wide = f"{at * width:.1f}", f"{width * 0.86:.1f}"
        parts = [el("rect", x=x, y=f"{_HEIGHT - high:.1f}", width=wide, height=f"{high:.1f}",
                    class_="total")]  # fmt: skip
        if value > limit.top:
            parts.append(el("rect", x=x, y=_CUT_AT, width=wide, height=2.5, class_="cut"))
        drawn.append(el("g", el("title", title), parts))
    return _stretched(drawn, label)


def areas(series: Mapping[str, Sequence[float]], limit: Scale, label: str) -> Html:
    """Areas over time on top of each other: (class -> values at evenly spaced times)."""
    count = len(next(iter(series.values()), ()))
    floor = [0.0] * count
    drawn: list[Child] = [el("title", label), *_rules(limit)]
    for name, values in series.items():
        ceiling = [low + value for low, value in zip(floor, values, strict=True)]
        if any(value > 0 for value in values):
            drawn.append(el("path", d=_outline(floor, ceiling, limit), class_=name))
        floor = ceiling
    if len(series) == 1:
        drawn.append(el("path", d=f"M{_points(floor, limit)}", class_="line"))
    return _stretched(drawn, label)


def _stretched(drawn: Sequence[Child], label: str) -> Html:
    return el(
        "svg", drawn, class_="plot", role="img", aria_label=label,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none",
    )  # fmt: skip


def _outline(floor: Sequence[float], ceiling: Sequence[float], limit: Scale) -> str:
    return f"M{_points(ceiling, limit)}L{_points(floor, limit, back=True)}Z"


def _points(values: Sequence[float], limit: Scale, *, back: bool = False) -> str:
    step = _WIDTH / max(len(values) - 1, 1)
    found = [
        f"{at * step:.1f} {_HEIGHT - limit.share(value) * _HEIGHT:.2f}"
        for at, value in enumerate(values)
    ]
    return "L".join(found[::-1] if back else found)


def _rules(limit: Scale) -> list[Html]:
    """The grid: a line at each tick."""
    heights = [_HEIGHT - limit.share(tick) * _HEIGHT for tick in limit.ticks]
    return [
        el("path", d=f"M0 {y:.2f}H{_WIDTH}", class_="base" if y == _HEIGHT else "grid")
        for y in heights
    ]


def chart(picture: Html, limit: Scale, tick: Callable[[float], str], across: Html) -> Html:
    """A picture with ticks on both sides. `tick`: the label of a value; `across`: its axis."""
    up = [el("span", tick(value), style=_at(limit.share(value))) for value in limit.ticks]
    return el("div", el("div", up, class_="y"), picture, across, class_="chart")


def time_axis(low_ms: float, high_ms: float) -> Html:
    """Round times along a picture; page.js moves them to round times of the viewer's zone."""
    span = max(high_ms - low_ms, 1)
    ticks = []
    for tick in time_ticks(low_ms, high_ms):
        share = (tick.time_ms - low_ms) / span
        ticks.append(
            el("time", tick.words, datetime=iso_text(tick.time_ms), data_step=str(tick.step_ms),
               class_=_edge(share), style=_at(share))
        )  # fmt: skip
    return el(
        "div", ticks, class_="axis", data_low=str(round(low_ms)), data_high=str(round(high_ms))
    )


def offset_axis(widest: int, before: int = 0) -> Html:
    """Offsets from the log start, which is `before` offsets from the left end."""
    drawn = []
    for tick in scale([widest - before], steps=3).ticks:
        share = (tick + before) / widest
        words = f"+{tick_text(tick)}" if tick else "0"
        drawn.append(el("span", words, class_=_edge(share), style=_at(share)))
    return el("div", drawn, class_="axis")


def _edge(share: float) -> str | None:
    """The class of a tick near an end: its label stays within the picture."""
    return "first" if share < 0.06 else "last" if share > 0.94 else None


def _at(share: float) -> str:
    return f"--at:{share:.4g}"


def spark(values: Sequence[float], label: str) -> Html:
    """A small picture of values over time, as high as the largest; without axes."""
    group = -(-len(values) // _SPARK_POINTS)
    sums = [sum(values[at : at + group]) for at in range(0, len(values), group)]
    limit = scale(sums, cuts=True)
    heights = [f"{_SPARK - limit.share(value) * (_SPARK - 1):.1f}" for value in sums]
    line = "L".join(f"{at} {y}" for at, y in enumerate(heights))
    last = max(len(sums) - 1, 1)
    if len(sums) == 1:
        line += f"L1 {heights[0]}"
    return el(
        "svg",
        el("title", label),
        el("path", d=f"M0 {_SPARK}L{line}V{_SPARK}Z", class_="area"),
        el("path", d=f"M{line}", class_="line"),
        [el("rect", x=f"{at - 0.5:g}", y=2, width=1, height=2, class_="cut")
         for at, value in enumerate(sums) if value > limit.top],
        class_="spark", role="img", aria_label=label,
        viewBox=f"0 0 {last} {_SPARK}", preserveAspectRatio="none",
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"
