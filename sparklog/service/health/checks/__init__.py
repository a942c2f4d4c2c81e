"""The health checks: functions of `HealthInputs`, without I/O.

- `storage`: writable, partitions, disk
- `activity`: readers, writers
- `background_work`: retention, service, tier, cleaner, erasures
"""

from collections.abc import Iterator

from sparklog.service.health.checks.activity import readers, writers
from sparklog.service.health.checks.background_work import (
    cleaner,
    erasures,
    retention,
    service,
    tier,
)
from sparklog.service.health.checks.storage import disk, partitions, writable
from sparklog.service.health.inputs import HealthInputs
from sparklog.service.health.model import Check


def judge(inputs: HealthInputs) -> Iterator[Check]:
    """Yield the checks that apply to this kind of log, in the order of CHECKS."""
    yield writable(inputs)
    if inputs.nothing:
        return
    yield partitions(inputs)
    if inputs.kind == "archive":
        return
    if inputs.is_known:
        yield readers(inputs)
    if inputs.disks:
        yield disk(inputs)
    if inputs.kind == "log":
        if inputs.found.first_deletions:
            yield retention(inputs)
        yield service(inputs)
        tiered = inputs.found.remote_url is not None or inputs.found.tier_fault is not None
        if tiered and not inputs.in_store:
            yield tier(inputs)
        if inputs.compacted or inputs.dirty:
            yield cleaner(inputs)
        if inputs.is_known:
            yield writers(inputs)
        if inputs.erasures:
            yield erasures(inputs)
