"""Retention of a topic that is compacted as well takes what Kafka's takes."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock, system_clock
from sparklog.service import Service
from tests.oracle import Oracle

DAY = 24 * 3_600_000
CONFIG = {
    "cleanup.policy": "compact,delete",
    "internal.segment.bytes": "400",
    "retention.ms": str(7 * DAY),
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


@pytest.mark.parametrize(
    ("backdated_days", "later_days"), [(0, 6), (0, 8), (30, 0), (30, 6), (30, 8)]
)
def test_emptied_segments(
    oracle: Oracle, tmp_path: Path, backdated_days: int, later_days: int
) -> None:
    """They are as old as the files whose place they took, and hold what follows them until then."""
    path, clock = tmp_path / "log", ManualClock(system_clock())
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=CONFIG)
        first_ms = clock() - backdated_days * DAY
        for n in range(12):
            stamps = pa.array([first_ms + n], pa.timestamp("ms"))
            rows = {"key": [b"k"], "value": [b"%04d" % n + b"." * 100], "timestamp": stamps}
            log.append("t", pa.table(rows), partition=0)
    raw = shutil.copytree(path, tmp_path / "raw") / "t-0"
    Service(path, clock=clock).compact()
    sizes = [file.stat().st_size for file in sorted((path / "t-0").glob("*.log"))]
    assert sizes[:4] == [0] * 4
    clock.advance(later_days * DAY)
    theirs = oracle.retain(raw, now_ms=clock(), config=CONFIG, cleaning=True)
    of_ours = oracle.retain(path / "t-0", now_ms=clock(), config=CONFIG)
    Service(path, clock=clock).retain()
    with sparklog.open(path) as log:
        ours = log.offsets("t")[0]
    assert ours == (theirs.start, theirs.end) == (of_ours.start, of_ours.end)
    bases = sorted(int(file.stem) for file in (path / "t-0").glob("*.log"))
    assert bases == theirs.segments == of_ours.segments
