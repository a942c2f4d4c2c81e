"""The checks: what was seen, judged. Functions of a `Sight`; nothing is read here.

- `places`: writable, partitions, disk; `readers`; `writers`
- `work`: what is done in the background, and by whom: retention, service, tier, cleaner,
  erasures, moves
- `rhythm`: has somebody stopped, by its own measure; `commands`: what helps
"""

from collections.abc import Iterator

from sparklog.service.health.checks.places import disk, partitions, writable
from sparklog.service.health.checks.readers import readers
from sparklog.service.health.checks.work import (
    cleaner,
    erasures,
    retention,
    service,
    tier,
)
from sparklog.service.health.checks.writers import writers
from sparklog.service.health.model import Check
from sparklog.service.health.sight import Sight


def judge(sight: Sight) -> Iterator[Check]:
    """Yield the checks that such a log has, in the order of CHECKS."""
    yield writable(sight)
    if sight.nothing:
        return
    yield partitions(sight)
    if sight.kind == "archive":
        return
    if sight.is_known:
        yield readers(sight)
    if sight.disks:
        yield disk(sight)
    if sight.kind == "log":
        if sight.found.first_deletions:
            yield retention(sight)
        yield service(sight)
        tiered = sight.found.remote_url is not None or sight.found.tier_fault is not None
        if tiered and not sight.in_store:
            yield tier(sight)
        if sight.compacted or sight.dirty:
            yield cleaner(sight)
        if sight.is_known:
            yield writers(sight)
        if sight.erasures:
            yield erasures(sight)
