"""The verdict on a log: an object that all commands, pages and probes show."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sparklog.clock import iso
from sparklog.html import Html, el, table
from sparklog.metrics import Sample
from sparklog.service.metrics.names import HEALTH

CHECKS: Final = (
    "writable", "partitions", "readers", "disk", "retention", "service", "tier", "cleaner",
    "writers", "erasures",
)  # fmt: skip
"""The names of all checks, in the order in which they are shown."""
_TOLD: Final = 3  # reasons in a verdict


class Level(StrEnum):
    """The level of a check: green, amber (needs attention) or red (broken now).

    Examples:
        >>> from sparklog.service import Level
        >>> [level.rank for level in Level]
        [0, 1, 2]
    """

    GREEN = "green"
    AMBER = "amber"
    RED = "red"

    @property
    def rank(self) -> int:
        """0, 1 or 2; 2 is the worst. The value of the metric sparklog_health."""
        return _RANKS[self]


_RANKS: Final = {Level.GREEN: 0, Level.AMBER: 1, Level.RED: 2}


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst level; green if there are none."""
    return max(levels, key=lambda level: level.rank, default=Level.GREEN)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check.

    Attributes:
        name: The name of the check.
        level: The level.
        what: A sentence with figures, without its full stop.
        command: A shell command that helps, if an action is needed.

    Examples:
        >>> from sparklog.service import examine
        >>> examine("log").check("partitions").what
        '2 partitions, none offline'
    """

    name: str
    level: Level
    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a log, returned by `examine`.

    Attributes:
        path: The log.
        time_ms: When the log was examined, in milliseconds since the epoch.
        kind: log, broker (log dirs of a broker), archive (remote segments only), or nothing.
        checks: The checks that apply to this kind of log.

    Examples:
        >>> from sparklog.service import examine
        >>> health = examine("log")
        >>> health.kind, health.level
        ('log', <Level.GREEN: 'green'>)
    """

    path: str
    time_ms: int
    kind: str
    checks: tuple[Check, ...]

    @property
    def level(self) -> Level:
        """The level of the worst check."""
        return worst(check.level for check in self.checks)

    @property
    def wrong(self) -> list[Check]:
        """The checks that are not green, worst first."""
        failed = [check for check in self.checks if check.level is not Level.GREEN]
        return sorted(failed, key=lambda check: -check.level.rank)

    @property
    def verdict(self) -> str:
        """A summary in a sentence, worst check first."""
        failed = self.wrong
        if not failed:
            return f"All is well: {', '.join(check.what for check in self.checks[:2])}"
        summary = "; ".join(check.what for check in failed[:_TOLD])
        left = len(failed) - _TOLD
        return f"{summary}; and {left} more" if left > 0 else summary

    def check(self, name: str) -> Check | None:
        """Return a check by its name, or None if the check does not apply to this log.

        Args:
            name: The name of the check, such as "disk".
        """
        return next((check for check in self.checks if check.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, for JSON."""
        return {
            "path": self.path,
            "time_ms": self.time_ms,
            "kind": self.kind,
            "level": str(self.level),
            "verdict": self.verdict,
            "checks": [
                {"name": c.name, "level": str(c.level), "what": c.what, "command": c.command}
                for c in self.checks
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.level}: {self.verdict}"]
        lines += [f"  {c.name:<10} {c.level:<5} {c.what}" for c in self.checks]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return a table, for notebooks."""
        rows = [
            (check.name, _mark(check.level), check.what, el("code", check.command or ""))
            for check in self.checks
        ]
        caption = [_mark(self.level), " ", el("b", self.verdict)]
        when = f"{self.path}, {iso(self.time_ms)}"
        return table(caption, ("check", "level", "what", "what helps"), rows, notes=[when])


_COLOURS: Final = {Level.GREEN: "#2e7d32", Level.AMBER: "#b26a00", Level.RED: "#c62828"}


def _mark(level: Level) -> Html:
    return el("span", f"\N{BLACK CIRCLE} {level}", style=f"color:{_COLOURS[level]}")


def health_samples(health: Health) -> Iterator[Sample]:
    """Yield a sample per check: 0 green, 1 amber, 2 red."""
    for check in health.checks:
        yield Sample(HEALTH, (check.name,), check.level.rank)
