"""The verdict at the top of a page, by colour, shape and word, with reasons and commands."""

from collections.abc import Sequence
from typing import Final

from sparklog.html import Child, Html, el
from sparklog.service.health import Check, Health, Level
from sparklog.ui.report.page_parts import command, section

WORDS: Final = {
    Level.GREEN: "Green: all is well",
    Level.AMBER: "Amber: needs a look",
    Level.RED: "Red: broken",
}
NAMES: Final = {
    "writable": "Writing", "partitions": "Partitions", "readers": "Readers", "disk": "Disk",
    "service": "Service", "tier": "Remote storage", "cleaner": "Compaction",
    "writers": "Last commit",
}  # fmt: skip
# A disc with a tick, a triangle with a bar and a dot, an octagon with a cross; 16 by 16.
_SHAPES: Final = {
    Level.GREEN: ("M8 1a7 7 0 1 1 0 14a7 7 0 0 1 0-14Z", "M4.8 8.3L7.1 10.6L11.3 5.8"),
    Level.AMBER: ("M8 1.2L15.6 14.6H0.4Z", "M8 5.8V10M8 11.4V12.8"),
    Level.RED: (
        "M5.1 1H10.9L15 5.1V10.9L10.9 15H5.1L1 10.9V5.1Z",
        "M5.4 5.4L10.6 10.6M10.6 5.4L5.4 10.6",
    ),
}


def mark(level: Level) -> Html:
    """The sign of a level, with its word for screen readers."""
    shape, sign = _SHAPES[level]
    return el(
        "svg", el("path", d=shape), el("path", d=sign, class_="sign"),
        class_=f"level is-{level}", role="img", aria_label=str(level), viewBox="0 0 16 16",
    )  # fmt: skip


def health_section(health: Health) -> Html:
    """The verdict: first the findings, each with the command that helps.

    Then the checks that passed.
    """
    well = [check for check in health.checks if check.level is Level.GREEN]
    wrong = health.wrong
    words = WORDS[health.level]
    if wrong:
        words += f", {len(wrong)} of {len(health.checks)} checks"
    return el(
        "div",
        section(
            "health",
            el("span", mark(health.level), el("span", words), class_="verdict"),
            _list(wrong, "wrong"),
            _list(well, "well"),
        ),
        class_=f"health is-{health.level}",
    )


def _list(checks: Sequence[Check], name: str) -> Html | None:
    if not checks:
        return None
    return el("ul", [_row(check, loud=name == "wrong") for check in checks], class_=name)


def _row(check: Check, *, loud: bool) -> Html:
    said: list[Child] = [el("bdi", check.what)]
    if loud and check.command is not None:
        said.append(command(check.command))
    return el(
        "li",
        mark(check.level),
        el("strong", NAMES.get(check.name, check.name)),
        el("div", said),
    )
