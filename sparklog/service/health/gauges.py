"""The verdict as metrics: a gauge per check."""

from collections.abc import Iterator

from sparklog.metrics import Sample
from sparklog.service.health.model import Health
from sparklog.service.metrics.names import HEALTH


def health_samples(health: Health) -> Iterator[Sample]:
    """Yield a sample per check: 0 green, 1 amber, 2 red."""
    for check in health.checks:
        yield Sample(HEALTH, (check.name,), check.level.rank)
