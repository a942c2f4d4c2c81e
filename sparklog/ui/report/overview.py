"""The top of the report (important numbers, health, notices), and the section "Log dirs"."""

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from sparklog.service import Severity
from sparklog.service.health import Health, Level
from sparklog.ui.report.model import LogReport, Where
from sparklog.ui.templating import render

_LEVELS: Final = {
    Level.GREEN: "Green: all is well",
    Level.AMBER: "Amber: needs attention",
    Level.RED: "Red: broken",
}
_CHECKS: Final = {
    "writable": "Writing", "partitions": "Partitions", "readers": "Readers", "disk": "Disk",
    "retention": "Retention", "service": "Service", "tier": "Remote storage",
    "cleaner": "Compaction", "writers": "Last commit", "erasures": "Erasures",
}  # fmt: skip
_NOTICES_MAX: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFigures:
    """The important numbers of a log.

    `both_bytes`: the size of segments that are both local and remote. `greatest_lag`: the lag of
    the slowest reader, summed over its partitions.
    """

    topics: int
    partitions: int
    segments: int
    offsets: int
    bytes: int
    local_bytes: int
    remote_bytes: int
    both_bytes: int
    commits: int
    last_commit_ms: int | None
    readers: int
    greatest_lag: int

    @property
    def local_share(self) -> float:
        """The local share of the log's bytes, from 0 to 1."""
        return self.local_bytes / (self.bytes or 1)


def log_figures(report: LogReport) -> LogFigures:
    """Return the important numbers of a report."""
    partitions = list(report.partitions)
    sizes = dict.fromkeys(Where, 0)
    for partition in partitions:
        for segment in partition.segments:
            sizes[segment.where] += segment.bytes
    lags: dict[str, int] = {}
    for reader in report.readers:
        lag = 0 if reader.expired else reader.lag or 0
        lags[reader.group] = lags.get(reader.group, 0) + lag
    writers = report.commits.writers
    return LogFigures(
        topics=len(report.topics),
        partitions=len(partitions),
        segments=sum(len(p.segments) for p in partitions),
        offsets=sum(p.offsets for p in partitions),
        bytes=sum(sizes.values()),
        local_bytes=sizes[Where.LOCAL] + sizes[Where.BOTH],
        remote_bytes=sum(p.remote_bytes for p in partitions),
        both_bytes=sizes[Where.BOTH],
        commits=sum(w.commits for w in writers),
        last_commit_ms=max((w.last_ms for w in writers), default=None),
        readers=len(lags),
        greatest_lag=max(lags.values(), default=0),
    )


def health_section(health: Health) -> Markup:
    """Return the HTML of the health of the log.

    Problems come first, each with the command that helps. The checks that passed follow.
    """
    passed = [check for check in health.checks if check.level is Level.GREEN]
    return render(
        "report/health.html", health=health, words=_LEVELS[health.level], names=_CHECKS,
        passed=passed,
    )  # fmt: skip


def notices(report: LogReport) -> Markup | None:
    """Return the HTML of damage and warnings, or None if there are none."""
    if not report.notices:
        return None
    damage = sum(n.severity is Severity.DAMAGE for n in report.notices)
    shown = report.notices[:_NOTICES_MAX]
    return render(
        "report/notices.html", notices=shown, count=len(report.notices), damage=damage,
        left=len(report.notices) - len(shown),
    )  # fmt: skip


def directories_section(report: LogReport) -> Markup | None:
    """Return the HTML of the section "Log dirs", or None for a log in an object store."""
    if report.is_in_store:
        return None
    return render("report/directories.html", directories=report.directories)
