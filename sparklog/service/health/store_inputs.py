"""Collects the health inputs of a log in a bucket from observed metrics."""

from collections.abc import Iterator

from sparklog.log.topic_names import INTERNAL
from sparklog.service.health.inputs import Dirty, HealthInputs, leader_of
from sparklog.service.health.limits import Limits
from sparklog.service.metrics.observed import LogMetrics


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
