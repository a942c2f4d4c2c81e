"""When a segment is full, to the byte and the millisecond."""

import pytest

from sparklog.format.scan import scan
from sparklog.logdir.partition.rolling import RollParams, fit
from tests.logdir.partitions import T0, batch, config

SIZE = len(batch("v"))


@pytest.mark.parametrize(("spare", "fitting"), [(0, 3), (-1, 2), (SIZE - 1, 3)])
def test_by_size(spare: int, fitting: int) -> None:
    """A segment may be just as large as segment.bytes."""
    table = scan(batch("v", "v", "v", "v", one_each=True), path="t").table
    limit = config(segment_bytes=4 * SIZE + spare)
    params = RollParams(base=0, size=SIZE, first_timestamp=T0, created_ms=T0)
    assert fit(table, params, limit, now=T0, jitter_ms=0) == fitting


@pytest.mark.parametrize(("waited_ms", "fitting"), [(1000, 1), (1001, 0)])
def test_by_time(waited_ms: int, fitting: int) -> None:
    table = scan(batch("v", at=T0 + waited_ms), path="t").table
    params = RollParams(base=0, size=SIZE, first_timestamp=T0, created_ms=T0)
    assert fit(table, params, config(segment_ms=1000), now=T0, jitter_ms=0) == fitting
