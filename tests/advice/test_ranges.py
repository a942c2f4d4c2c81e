"""What a restore can't bring is left out by the ranges beside it, in a directory of their own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.fs import LocalFileSystem
from sparklog.service import Service, verify
from sparklog.tiered.restoring import restore
from tests.advice.test_arguments import TIERED


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """A tier of topic a: seven segments of one record."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("a", config=TIERED)
        for number in range(8):
            log.append("a", pa.table({"value": [f"{number}" * 9]}))
    with Service(tmp_path / "log", remote=f"file://{tmp_path}/copies") as service:
        assert not service.run_once().errors
    return tmp_path / "copies"


def offsets(path: Path) -> list[int]:
    assert verify(path).ok
    with sparklog.open(path) as log:
        found: list[int] = log.read("a").read_all()["offset"].to_pylist()
    return found


def test_other_ranges_are_restored_around_a_damaged_object(copies: Path, tmp_path: Path) -> None:
    url, damaged = f"file://{copies}", sorted(copies.rglob("*.log"))[3]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-3] + b"xxx")
    with pytest.raises(DataCorruptionError, match="other ranges to another directory"):
        restore(url, tmp_path / "all")
    for name, bounds in {"before": {"end": {0: 3}}, "behind": {"start": {0: 4}}}.items():
        restore(url, tmp_path / name, topics=["a"], **bounds)  # type: ignore[arg-type]
    assert offsets(tmp_path / "before") == [0, 1, 2]
    assert offsets(tmp_path / "behind") == [4, 5, 6]
    damaged.write_bytes(whole)  # from a copy of the bucket
    restore(url, tmp_path / "all")
    assert offsets(tmp_path / "all") == list(range(7))


class SmallDisk(LocalFileSystem):
    def free_bytes(self, path: str) -> int:
        return 500 if "small" in path else super().free_bytes(path)


def test_less_is_restored_where_there_is_little_room(copies: Path, tmp_path: Path) -> None:
    url, fs = f"file://{copies}", SmallDisk()
    with pytest.raises(StorageUnavailableError, match="to another disk, or less to another"):
        restore(url, tmp_path / "small", fs=fs)
    restore(url, tmp_path / "small-too", topics=["a"], start={0: 5}, fs=fs)
    assert offsets(tmp_path / "small-too") == [5, 6]
    restore(url, tmp_path / "large", fs=fs)
    assert offsets(tmp_path / "large") == list(range(7))


def test_other_ranges_are_restored_around_a_missing_object(copies: Path, tmp_path: Path) -> None:
    url, lost = f"file://{copies}", sorted(copies.rglob("*.log"))[3]
    whole = lost.read_bytes()
    lost.unlink()
    with pytest.raises(DataCorruptionError, match="no copy contains these offsets"):
        restore(url, tmp_path / "all")
    restore(url, tmp_path / "behind", topics=["a"], start={0: 4})
    assert offsets(tmp_path / "behind") == [4, 5, 6]
    lost.write_bytes(whole)
    restore(url, tmp_path / "all")
    assert offsets(tmp_path / "all") == list(range(7))
