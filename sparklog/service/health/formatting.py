"""Figures as a sentence has them: short, with their unit."""

from collections.abc import Sequence
from typing import Final

from sparklog import quantities
from sparklog.pluralize import pluralize

_NAMED: Final = 3


def duration_text(ms: float) -> str:
    """A length of time by its largest unit that fits; none where clocks disagree."""
    return quantities.duration_text(max(0.0, ms))


def ago_text(time_ms: int, now_ms: int) -> str:
    """How long before now; a time that is still to come counts as now."""
    return "just now" if now_ms - time_ms < 1000 else f"{duration_text(now_ms - time_ms)} ago"


def records_text(count: float) -> str:
    """A number of offsets, as records."""
    return f"{round(count):,} record{'' if round(count) == 1 else 's'}"


def count_with_names(names: Sequence[str], noun: str) -> str:
    """How many there are, and the first of them by name: "5 partitions (a, b, c, ...)"."""
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"{pluralize(len(names), noun)} ({listed})"
