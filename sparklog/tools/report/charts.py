"""Charts as inline SVG.

Widths are percentages and all words stand beside them as HTML, so a
picture has any width and its labels keep their size. Colours are classes of the style sheet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.tools.report.html import Child, Html, el
from sparklog.tools.report.model import SegmentReport
from sparklog.tools.report.units import size_text, time_text

_WIDE: Final = 0.8  # per cent: from here on blocks are set apart by a gap
_THIN: Final = 0.35  # per cent: narrower blocks are drawn as one, or so wide
_HEIGHT: Final = 100
UNKNOWN: Final = "unknown"
EMPTY: Final = "w-empty"


@dataclass(slots=True)
class Block:
    """What is drawn for one segment or several narrow ones; `x` and `end` in per cent."""

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
    """Blocks for segments at `spans` (per cent), ascending; about `most` of them, or a few more.

    Neighbours that are too narrow to be told apart become one: those that look the same first.
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


def strip(found: Sequence[Block], label: str, marks: Sequence[tuple[float, str]] = ()) -> Html:
    """A row of blocks: where they lie by colour, their codec by the line below.

    `marks`: lines across it, (per cent, words) each.
    """
    drawn: list[Child] = [el("title", label)]
    for block in found:
        gap = 0.12 if block.width > _WIDE else 0.0
        x, width = f"{block.x:.2f}%", f"{max(block.width - gap, _THIN):.2f}%"
        most = max(block.segments, key=lambda s: s.bytes)
        codec, where = most.codec or UNKNOWN, f"w-{most.where}" if most.bytes else EMPTY
        above = el("rect", x=x, width=width, y=0, height=11, class_=where)
        below = el("rect", x=x, width=width, y=12, height=4, class_=f"c-{codec}")
        title = el("title", describe(block.segments))
        drawn.append(el("g", title, above, below if most.bytes else None))
    for at, words in marks:
        mark = el("rect", x=f"{min(at, 99.8):.2f}%", width=2, y=0, height=16, class_="mark")
        drawn.append(el("g", el("title", words), mark))
    return el("svg", drawn, class_="strip", role="img", aria_label=label)


def describe(segments: Sequence[SegmentReport]) -> str:
    """What a block stands for, in one line."""
    first, last = segments[0], segments[-1]
    codecs = sorted({s.codec or "codec not read" for s in segments})
    places = sorted({str(s.where) for s in segments})
    many = f"{len(segments)} segments, " if len(segments) > 1 else ""
    times = [s.last_ms for s in segments if s.last_ms is not None]
    begins = [s.since_ms for s in segments if s.since_ms is not None]
    when = f", {time_text(min(begins))} to {time_text(max(times))}" if times and begins else ""
    return (
        f"{many}offsets [{first.base:,}, {last.end:,}), {size_text(sum(s.bytes for s in segments))}"
        f", {'/'.join(codecs)}, {'/'.join(places)}{when}"
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


def stacked(
    series: Mapping[str, Sequence[float]], label: str, titles: Sequence[str], *, total: float
) -> Html:
    """Columns over time, one each bin, its series (class -> values) on top of each other.

    `titles`: of each bin. `total`: the value at the top.
    """
    count = len(titles)
    drawn: list[Child] = [el("title", label), *_rules()]
    for at in range(count):
        y, column = float(_HEIGHT), []
        for name, values in series.items():
            height = values[at] / total * _HEIGHT if total else 0.0
            if height <= 0:
                continue
            y -= height
            x, width = _percent(at / count), _percent(0.86 / count)
            column.append(
                el("rect", x=x, width=width, y=f"{y:.2f}%", height=f"{height:.2f}%", class_=name)
            )
        if column:
            drawn.append(el("g", el("title", titles[at]), column))
    return el("svg", drawn, class_="columns", role="img", aria_label=label)


def areas(series: Mapping[str, Sequence[float]], label: str, *, total: float) -> Html:
    """Areas over time on top of each other: (class -> values at evenly spaced times)."""
    count = len(next(iter(series.values()), ()))
    floor = [0.0] * count
    drawn: list[Child] = [el("title", label), *_rules(in_units=True)]
    for name, values in series.items():
        ceiling = [low + value for low, value in zip(floor, values, strict=True)]
        if any(value > 0 for value in values):
            drawn.append(el("path", d=_outline(floor, ceiling, total), class_=name))
        floor = ceiling
    return el(
        "svg", drawn, class_="columns", role="img", aria_label=label,
        viewBox=f"0 0 1000 {_HEIGHT}", preserveAspectRatio="none",
    )  # fmt: skip


def _outline(floor: Sequence[float], ceiling: Sequence[float], total: float) -> str:
    step = 1000 / max(len(floor) - 1, 1)

    def point(at: int, value: float) -> str:
        return f"{at * step:.1f} {_HEIGHT - value / (total or 1) * _HEIGHT:.2f}"

    above = [point(at, value) for at, value in enumerate(ceiling)]
    below = [point(at, value) for at, value in enumerate(floor)][::-1]
    return f"M{'L'.join(above)}L{'L'.join(below)}Z"


def _rules(*, in_units: bool = False) -> list[Html]:
    """The grid: lines at 0, a half and all of the height."""
    if in_units:
        return [el("rect", x=0, y=y, width=1000, height=0.4, class_="grid") for y in (0, 50)]
    return [el("rect", x=0, y=y, width="100%", height=1, class_="grid") for y in ("0", "50%")]


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"
