"""LeaderEpochFileCacheTest's behaviours."""

from pathlib import Path

import pytest

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.logdir.partition.leader_epochs import LeaderEpochFileCache
from sparklog.storage.leader_epochs import end_offset_for


def cache(path: Path, *entries: tuple[int, int]) -> LeaderEpochFileCache:
    epochs = LeaderEpochFileCache(LOCAL, str(path))
    for epoch, start in entries:
        epochs.assign(epoch, start)
    assert LeaderEpochFileCache(LOCAL, str(path)).entries == epochs.entries  # it is on disk
    return epochs


@pytest.mark.parametrize(
    ("assigned", "kept"),
    [
        ([(1, 0), (1, 5)], [(1, 0)]),  # the first start stands
        ([(1, 5), (1, 3)], [(1, 3)]),  # unless a lower one comes
        ([(1, 0), (2, 5), (4, 9)], [(1, 0), (2, 5), (4, 9)]),
        ([(1, 0), (2, 5), (3, 5)], [(1, 0), (3, 5)]),  # an epoch without data goes
        ([(1, 0), (2, 5), (3, 2)], [(1, 0), (3, 2)]),
        ([(1, 0), (4, 5), (2, 9)], [(1, 0), (2, 9)]),
    ],
)
def test_assign(
    tmp_path: Path, assigned: list[tuple[int, int]], kept: list[tuple[int, int]]
) -> None:
    assert cache(tmp_path, *assigned).entries == kept


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negatives_are_refused(tmp_path: Path, entry: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequestError):
        cache(tmp_path, entry)


def test_end_offsets(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 10), (4, 20), (7, 30))
    asked = {e: end_offset_for(epochs.entries, e, 50) for e in (-1, 1, 2, 3, 4, 6, 7, 8)}
    assert asked == {
        -1: (-1, -1), 1: (1, 10), 2: (2, 20), 3: (2, 20), 4: (4, 30), 6: (4, 30), 7: (7, 50),
        8: (-1, -1),
    }  # fmt: skip
    assert end_offset_for([], 0, 5) == (-1, -1)


def test_truncation(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 10), (4, 20), (7, 30))
    epochs.truncate_from_end(30)
    assert epochs.entries == [(2, 10), (4, 20)]
    epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15), (4, 20)]
    epochs.truncate_from_start(20)
    assert epochs.entries == [(4, 20)]
    epochs.truncate_from_start(100)
    assert LeaderEpochFileCache(LOCAL, str(tmp_path)).entries == [(4, 100)]


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n2\n1 1\n")
    with pytest.raises(DataCorruptionError):
        LeaderEpochFileCache(LOCAL, str(tmp_path))
