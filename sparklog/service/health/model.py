"""The verdict on a log: one object, which every command, page and probe shows alike."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sparklog.clock import iso
from sparklog.html import Html, el
from sparklog.notebook import table

CHECKS: Final = (
    "writable", "partitions", "readers", "disk", "retention", "service", "tier", "cleaner",
    "writers", "erasures",
)  # fmt: skip
"""The names of all checks, in the order in which they are told."""
_TOLD: Final = 3  # reasons in a verdict


class Level(StrEnum):
    """How well something is: green, amber (somebody should look), red (it is broken now)."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"

    @property
    def rank(self) -> int:
        """0, 1 or 2, the worst last: what the metric sparklog_health shows."""
        return _RANKS[self]


_RANKS: Final = {Level.GREEN: 0, Level.AMBER: 1, Level.RED: 2}


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst of some levels; green of none."""
    return max(levels, key=lambda level: level.rank, default=Level.GREEN)


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer. `what`: a sentence, with its figures and without its full stop.

    `command`: what helps, to be pasted into a shell; None if nothing is to be done.
    """

    name: str
    level: Level
    what: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict on the log at `path` as of `time_ms` (ms since the epoch).

    `kind`: log, broker (a broker keeps it), archive (copies alone), or nothing. `checks`: in the
    order of CHECKS, those that such a log has.
    """

    path: str
    time_ms: int
    kind: str
    checks: tuple[Check, ...]

    @property
    def level(self) -> Level:
        """The worst of its checks."""
        return worst(check.level for check in self.checks)

    @property
    def wrong(self) -> list[Check]:
        """The checks that aren't green, the worst first."""
        found = [check for check in self.checks if check.level is not Level.GREEN]
        return sorted(found, key=lambda check: -check.level.rank)

    @property
    def verdict(self) -> str:
        """All of it in one sentence, the worst first."""
        found = self.wrong
        if not found:
            return f"All is well: {', '.join(check.what for check in self.checks[:2])}"
        told = "; ".join(check.what for check in found[:_TOLD])
        left = len(found) - _TOLD
        return f"{told}; and {left} more" if left > 0 else told

    def check(self, name: str) -> Check | None:
        """Return a check by its name; None if such a log has none."""
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
