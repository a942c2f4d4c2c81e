"""A look at a log in a store: what the observer of metrics saw, as the verdict has it."""

from collections.abc import Iterator

from sparklog.log.topic_names import INTERNAL
from sparklog.service.health.limits import Limits
from sparklog.service.health.sight import Dirty, Sight, leader_of
from sparklog.service.metrics.observed import LogMetrics


def store_sight(path: str, found: LogMetrics, limits: Limits) -> Sight:
    """Return what there is to judge. Asks for nothing."""
    sight = Sight(path=path, kind="log", limits=limits, found=found, in_store=True)
    sight.unwritable = [one.error for one in found.directories if one.error]
    sight.erasures = list(found.detail.erasures)
    sign = found.detail.sign
    if found.holder:
        said = {**found.holder, "time_ms": sign.get("time_ms")}
        sight.leader = leader_of(said, False if sign.get("released") else None, "time_ms")
    sight.compacted = sum(key.topic not in INTERNAL for key in found.detail.compacted)
    sight.dirty = list(_dirty(found))
    return sight


def _dirty(found: LogMetrics) -> Iterator[Dirty]:
    """The partitions that the cleaner would take now, by Kafka's rule."""
    for key, one in found.detail.compacted.items():
        if one.wanted:
            waits_ms = max(0, found.time_ms - one.closed_ms, one.dirt.overdue_ms)
            yield Dirty(key, one.dirt.ratio, one.dirt.cleanable_bytes, waits_ms)
