"""Figures in sentences: short, with their units; and shell commands that help with a finding."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from sparklog import quantities
from sparklog.pluralize import pluralize

_NAMED: Final = 3


def duration_text(ms: float) -> str:
    """Format a duration by its largest unit that fits; 0 for a negative value (two clocks)."""
    return quantities.duration_text(max(0.0, ms))


def ago_text(time_ms: int, now_ms: int) -> str:
    """Format how long ago a time was; a time in the future is formatted as now."""
    return "just now" if now_ms - time_ms < 1000 else f"{duration_text(now_ms - time_ms)} ago"


def records_text(count: float) -> str:
    """Format a number of records."""
    return f"{round(count):,} record{'' if round(count) == 1 else 's'}"


def count_with_names(names: Sequence[str], noun: str) -> str:
    """Return the number of names and the first of them: "5 partitions (a, b, c, ...)"."""
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"{pluralize(len(names), noun)} ({listed})"


def process(pid: object) -> str:
    """Return the command that shows the state of a process on this host."""
    return f"ps -o pid,stat,etime,args -p {pid}"


def disk_free(paths: Iterable[str]) -> str:
    """Return the command that shows free disk space; without paths, of all mounted disks."""
    return shlex.join(["df", "-h", *paths])
