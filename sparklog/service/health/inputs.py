"""What one look at a log saw, before it is judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.common import TopicPartition
from sparklog.service.health.disk_forecast import DiskForecast
from sparklog.service.health.limits import Limits
from sparklog.service.metrics.observed import LogMetrics
from sparklog.storage.unfinished_erasure import UnfinishedErasure


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads the background work, or did last.

    `alive`: whether it does; None: nobody can tell. `beat_ms`: its last sign of life, None if it
    gives none: a service of an older sparklog.
    """

    alive: bool | None
    host: str = "?"
    pid: object = "?"
    since_ms: int | None = None
    beat_ms: int | None = None


def leader_of(said: Mapping[str, Any], alive: bool | None, beat: str = "beat_ms") -> Leader:
    """Return who holds the work, by what it said of itself."""
    since_ms, beat_ms = said.get("since_ms"), said.get(beat)
    return Leader(
        alive,
        str(said.get("host", "?")),
        said.get("pid", "?"),
        since_ms if isinstance(since_ms, int) else None,
        beat_ms if isinstance(beat_ms, int) else None,
    )


@dataclass(frozen=True, slots=True)
class Dirty:
    """A compacted partition that the cleaner would take now, which it has been for `waits_ms`."""

    key: TopicPartition
    ratio: float
    bytes: int
    waits_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """What a service knows of itself, beside what everybody sees of the log.

    `dead`: works whose threads ended by themselves. `uncleanable`: {partition: why}.
    """

    dead: tuple[str, ...] = ()
    uncleanable: dict[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class HealthInputs:
    """A log as of `found.time_ms`. `kind`: see Health; `nothing`: why there is none;
    `is_mountable`: it may be that its disk isn't mounted.

    `ledger_fault`: why the commit ledger can't be opened. `unreadable`: files that readers or
    writers need and that are missing or damaged, as far as names and small files show.

    `path`: as its user named it. `in_store`: its home is a store. `unwritable`: why it can't be
    written, by what a look at its places shows; `lock_holder`: the process that keeps all others
    from it, standing still. `read_only`: what the user who looks has no right to write to, which
    others may. `is_write_tried`: of a log in a store, whether it answered a write. `leader`: None
    if no service ever led. `compacted`: how many partitions are;
    `dirty`: those of them that want cleaning. `tier_error`: why its tier
    can't be reached from here; None: it answered, or wasn't asked. `erasures`: those that aren't
    complete, the oldest first; `is_erasing`: somebody is at work on one.
    """

    path: str
    kind: str
    limits: Limits
    found: LogMetrics
    nothing: str = ""
    is_mountable: bool = False
    in_store: bool = False
    unwritable: list[str] = field(default_factory=list)
    ledger_fault: str | None = None
    unreadable: list[str] = field(default_factory=list)
    lock_holder: int | None = None
    read_only: str | None = None
    is_write_tried: bool = True
    leader: Leader | None = None
    disks: list[DiskForecast] = field(default_factory=list)
    compacted: int = 0
    dirty: list[Dirty] = field(default_factory=list)
    tier_error: str | None = None
    service_status: ServiceStatus | None = None
    erasures: list[UnfinishedErasure] = field(default_factory=list)
    is_erasing: bool = False

    @property
    def now_ms(self) -> int:
        """When it was looked at."""
        return self.found.time_ms

    @property
    def is_known(self) -> bool:
        """Whether its state could be read."""
        return bool(self.found.partitions) or not self.found.errors
