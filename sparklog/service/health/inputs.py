"""The state of a log at a moment, which the health checks judge; and its collection in a bucket."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.common import TopicPartition
from sparklog.log.topic_names import INTERNAL
from sparklog.service.health.disk_forecast import DiskForecast
from sparklog.service.health.limits import Limits
from sparklog.service.metrics.observed import LogMetrics
from sparklog.storage.unfinished_erasure import UnfinishedErasure


@dataclass(frozen=True, slots=True)
class Leader:
    """The service that leads the background work, or led last.

    Attributes:
        alive: Whether the service runs; None if this is unknown.
        beat_ms: The last heartbeat. Services of older versions of sparklog write none.
    """

    alive: bool | None
    host: str = "?"
    pid: object = "?"
    since_ms: int | None = None
    beat_ms: int | None = None


def leader_of(holder: Mapping[str, Any], alive: bool | None, beat: str = "beat_ms") -> Leader:
    """Return the leader, by the data that the service wrote about itself in the lease."""
    since_ms, beat_ms = holder.get("since_ms"), holder.get(beat)
    return Leader(
        alive,
        str(holder.get("host", "?")),
        holder.get("pid", "?"),
        since_ms if isinstance(since_ms, int) else None,
        beat_ms if isinstance(beat_ms, int) else None,
    )


@dataclass(frozen=True, slots=True)
class Dirty:
    """A compacted partition that has been due for cleaning for `waits_ms`."""

    key: TopicPartition
    ratio: float
    bytes: int
    waits_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The state of a service that only the process of the service knows.

    Attributes:
        dead: The kinds of work with a thread that died.
        uncleanable: {partition: reason} of partitions that the cleaner leaves alone.
    """

    dead: tuple[str, ...] = ()
    uncleanable: dict[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class HealthInputs:
    """The state of a log at `found.time_ms`, which the checks judge.

    Attributes:
        path: the path as the user gave it.
        kind: see `Health`.
        nothing: why there is no log.
        is_mountable: the log may be missing because its disk is not mounted.
        in_store: the log's home is a bucket.
        unwritable: reasons why the log cannot be written, as far as its files show.
        ledger_fault: why the commit ledger cannot be opened.
        unreadable: missing or damaged files that readers or writers need, as far as names and small
            files show.
        lock_holder: process id of a writer that blocks all others by holding the write lock.
        read_only: a path that this user has no permission to write; other users may have it.
        is_write_tried: for a log in a bucket, whether the store answered a write.
        leader: the last leader; None before the first.
        compacted: number of compacted partitions.
        dirty: compacted partitions that are due for cleaning.
        tier_error: why the tier cannot be reached from here, if it was probed.
        erasures: incomplete erasures, oldest first.
        is_erasing: a process is working on an erasure.
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

    def command(self, name: str, *more: str) -> str:
        """Return a sparklog command on this log. `name` may have two words: "readers show"."""
        return shlex.join(["sparklog", *name.split(), self.path, *more])

    @property
    def now_ms(self) -> int:
        """The time of the observation."""
        return self.found.time_ms

    @property
    def is_known(self) -> bool:
        """Whether the log's state could be read."""
        return bool(self.found.partitions) or not self.found.errors


def store_inputs(path: str, found: LogMetrics, limits: Limits) -> HealthInputs:
    """Collect the health inputs of a log in a bucket. Sends no request."""
    inputs = HealthInputs(path=path, kind="log", limits=limits, found=found, in_store=True)
    inputs.unwritable = [one.error for one in found.directories if one.error]
    inputs.erasures = list(found.detail.erasures)
    sign = found.detail.sign
    if found.holder:
        said = {**found.holder, "time_ms": sign.get("time_ms")}
        inputs.leader = leader_of(said, False if sign.get("released") else None, "time_ms")
    inputs.compacted = sum(key.topic not in INTERNAL for key in found.detail.compacted)
    inputs.dirty = list(_dirty(found))
    return inputs


def _dirty(found: LogMetrics) -> Iterator[Dirty]:
    """Yield the partitions that the cleaner would clean now, by Kafka's rule."""
    for key, one in found.detail.compacted.items():
        if one.wanted:
            waits_ms = max(0, found.time_ms - one.closed_ms, one.dirt.overdue_ms)
            yield Dirty(key, one.dirt.ratio, one.dirt.cleanable_bytes, waits_ms)
