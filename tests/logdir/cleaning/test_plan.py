"""Which segments: Kafka's ranges and groups, by arithmetic."""

from pathlib import Path

import pytest

from sparklog.config import TopicConfig
from sparklog.fs import LOCAL
from sparklog.log.cleaner_options import CleanerOptions
from sparklog.log.dirty_ratio import CompactedLog, within
from sparklog.logdir.cleaning.plan import CleanJob, Segment, find_dirt, grouped
from sparklog.storage.round_report import Dirt


def segments(*sizes: int, step: int = 10) -> list[Segment]:
    return [Segment(step * n, size, (0, n)) for n, size in enumerate(sizes)]


def bases(found: list[Segment]) -> list[int]:
    return [s.base for s in found]


@pytest.mark.parametrize(
    ("start", "stop", "want"),
    [(0, 40, [0, 10, 20, 30]), (15, 25, [10, 20]), (10, 10, []), (-1, 10, [0]), (39, 99, [30]),
     (0, 0, [])],
)  # fmt: skip
def test_within(start: int, stop: int, want: list[int]) -> None:
    assert bases(within(segments(1, 1, 1, 1), start, stop)) == want


@pytest.mark.parametrize(
    ("checkpoint", "stable", "want"),
    [
        (None, 45, (0, 30, 0, 300)),
        (20, 45, (20, 30, 200, 100)),
        (25, 45, (25, 30, 300, 100)),  # its segment is clean and dirty
        (20, 27, (20, 20, 200, 0)),  # rounded down to a segment
        (10, 27, (10, 20, 100, 100)),
        (45, 45, (45, 30, 400, 0)),  # in the active segment
        (46, 45, (0, 30, 0, 300)),  # past the end: start anew
    ],
)
def test_dirt(tmp_path: Path, checkpoint: int, stable: int, want: tuple[int, ...]) -> None:
    log = CompactedLog(
        config=TopicConfig(), segments=segments(100, 100, 100, 100), checkpoint=checkpoint,
        log_start=0, end=45, stable=stable,
    )  # fmt: skip
    found = find_dirt(LOCAL, str(tmp_path), log, now_ms=0)
    got = found.first_dirty, found.first_uncleanable, found.clean_bytes, found.cleanable_bytes
    assert got == want


def job(path: Path, found: list[Segment], **config: object) -> CleanJob:
    names = {name.replace("_", "."): str(value) for name, value in config.items()}
    end = found[-1].base + 10
    dirt = Dirt(first_dirty=0, first_uncleanable=end, clean_bytes=0, cleanable_bytes=1)
    return CleanJob(
        topic="t", partition=0, topic_id="", directory=str(path), config=TopicConfig.parse(names),
        options=CleanerOptions(), segments=tuple(found), bases=(), log_start=0, end=end,
        dirt=dirt, now_ms=0,
    )  # fmt: skip


def test_groups_by_bytes(tmp_path: Path) -> None:
    made = job(tmp_path, segments(60, 40, 50, 10, 100, 1), internal_segment_bytes=100)
    assert [bases(g) for g in grouped(LOCAL, made, 99)] == [[0, 10], [20, 30], [40], [50]]
    assert [bases(g) for g in grouped(LOCAL, made, 11)] == [[0, 10]]
    assert grouped(LOCAL, made, 0) == []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_groups_by_index_bytes(tmp_path: Path, suffix: str) -> None:
    for base in (0, 10, 20):
        (tmp_path / f"{base:020d}.{suffix}").write_bytes(bytes(24))
    made = job(tmp_path, segments(1, 1, 1), segment_index_bytes=48)
    assert [bases(g) for g in grouped(LOCAL, made, 99)] == [[0, 10], [20]]


def test_groups_with_sparse_offsets(tmp_path: Path) -> None:
    """testSegmentGroupingWithSparseOffsets, ...FollowingLoadOfZeroIndex: int32 offsets."""
    far = [Segment(0, 1, (0, 0)), Segment(2**31 - 10, 1, (0, 1)), Segment(2**31 + 5, 1, (0, 2))]
    assert [bases(g) for g in grouped(LOCAL, job(tmp_path, far), 2**32)] == [
        [0],
        [2**31 - 10, 2**31 + 5],
    ]
    empty = [Segment(0, 0, (0, 0)), Segment(2**31 + 5, 0, (0, 1))]
    assert len(grouped(LOCAL, job(tmp_path, empty), 2**32)) == 1
