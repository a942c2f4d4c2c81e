"""`remote.cache.directory`: what it keeps of one history is never read as part of another."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.diskless.entries import decode, encode
from sparklog.log.log import home_of
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.target import open_store
from tests.tiered.buckets import store_segment
from tests.tiered.copies import copy

TIME = datetime(2026, 1, 1, tzinfo=UTC)


def append(url: str, *values: str) -> None:
    with sparklog.open(url, mode="rw") as log:
        rows = {"value": [value.encode() for value in values], "timestamp": [TIME] * len(values)}
        log.append("t", pa.table(rows))


def values(url: str, cache: Path) -> list[bytes]:
    """Read a log as one does that begins with a state: its entries are no news."""
    with sparklog.open(url, options={"remote.cache.directory": str(cache)}) as log:
        log.offsets("t")
        home_of(log).view.objects.entries.clear()  # type: ignore[attr-defined]
        return [bytes(value) for value in log.read("t").read_all()["value"].to_pylist()]


def without_checksums(home: Path) -> None:
    """Write the entries again as an older version does."""
    for path in sorted(home.glob("ledger-*/*")):
        raw, number = path.read_bytes(), int(path.name)
        entry = decode(raw, number=number, path=str(path))
        extents = tuple((key, extent._replace(crc=-1)) for key, extent in entry.extents)
        record = replace(entry.record, duration_ms=None) if extents else entry.record
        plain = replace(entry, record=record, extents=extents)
        path.write_bytes(encode(number, plain, raw[entry.data_at :]))


def copied(home: Path, tmp_path: Path) -> Path:
    """A copy of the prefix, which goes on by itself."""
    other = tmp_path / "copy"
    shutil.copytree(home, other)
    append(f"file://{home}", "mine", "mine too")
    append(f"file://{other}", "your", "your too")
    return other


def rolled_back(home: Path, tmp_path: Path) -> Path:
    """The same prefix, from a backup, with another commit since."""
    backup = tmp_path / "backup"
    shutil.copytree(home, backup)
    append(f"file://{home}", "mine", "mine too")
    return backup


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    with sparklog.open(f"file://{home}", mode="rw") as log:
        log.create_topic("t", 1)
    append(f"file://{home}", "both")
    return home


Older = Callable[[Path], object]
VERSIONS = pytest.mark.parametrize(
    "written", [lambda home: None, without_checksums], ids=["today", "without checksums"]
)


@VERSIONS
def test_a_copy_of_the_prefix(home: Path, tmp_path: Path, written: Older) -> None:
    other, cache = copied(home, tmp_path), tmp_path / "cache"
    written(home)
    written(other)
    assert values(f"file://{home}", cache) == [b"both", b"mine", b"mine too"]
    assert values(f"file://{other}", cache) == [b"both", b"your", b"your too"]
    assert values(f"file://{home}", cache) == [b"both", b"mine", b"mine too"]


@VERSIONS
def test_a_prefix_that_was_rolled_back(home: Path, tmp_path: Path, written: Older) -> None:
    backup, cache = rolled_back(home, tmp_path), tmp_path / "cache"
    written(home)
    assert values(f"file://{home}", cache) == [b"both", b"mine", b"mine too"]
    shutil.rmtree(home)
    shutil.copytree(backup, home)
    append(f"file://{home}", "ours", "ours too")
    written(home)
    assert values(f"file://{home}", cache) == [b"both", b"ours", b"ours too"]


def test_blocks_are_kept_over_a_restart(home: Path, tmp_path: Path) -> None:
    """Inline data with a checksum, and what was staged."""
    url, cache = f"file://{home}", tmp_path / "cache"
    large = [f"{n:01000}" for n in range(600)]
    append(url, *large)
    first = values(url, cache)
    kept = sorted(path.name for path in cache.rglob("*.block"))
    assert len(kept) >= 2
    assert values(url, cache) == first == [b"both", *(value.encode() for value in large)]
    assert sorted(path.name for path in cache.rglob("*.block")) == kept


def test_copies_of_two_tiers_that_have_the_same_names(tmp_path: Path) -> None:
    """The second one is a copy of the first that went on by itself."""
    cache = tmp_path / "cache"

    def read(url: str, log: bytes) -> bytes:
        store = open_store(url)
        segment = copy(0, 9)
        store_segment(store, segment, log, {".index": log[:8]})  # type: ignore[arg-type]
        remote = RemoteObjects(lambda: store, BlockCache(0, str(cache), 1 << 20))
        ranges = remote.ranges(segment)
        assert ranges.opened.part(".index") == log[:8]
        return ranges.get(0, 100)

    assert read(f"file://{tmp_path}/a", b"a" * 100) == b"a" * 100
    assert read(f"file://{tmp_path}/b", b"b" * 100) == b"b" * 100
    assert read(f"file://{tmp_path}/a", b"a" * 100) == b"a" * 100
