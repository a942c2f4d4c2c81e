"""Staged files on their way into the log: in pieces of whole batches, or not at all."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparklog
from sparklog import InvalidRequestError, Log
from sparklog.errors import StorageUnavailableError
from sparklog.fs import LOCAL
from sparklog.fs.files import LocalFile
from sparklog.fs.local import LocalFileSystem
from sparklog.logdir import chunk_appends
from sparklog.logdir.chunk_appends import windows
from sparklog.logdir.chunk_files import CHUNK_PREFIX
from sparklog.storage.commits import Chunk
from tests.logdir.partitions import batch

WHOLE = batch(*(bytes([n]) * 300 for n in range(10)), one_each=True)
SIZE = len(WHOLE) // 10


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        yield log


def staged(directory: str, raw: bytes, size: int) -> Chunk:
    path = os.path.join(directory, f"{CHUNK_PREFIX}test")
    Path(path).write_bytes(raw)
    return Chunk(
        topic="t",
        partition=0,
        path=path,
        size_bytes=size,
        records=10,
        min_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_000,
    )


@given(window=st.integers(12, len(WHOLE) + 10), count=st.integers(0, 10))
def test_pieces_are_whole_batches(
    tmp_path_factory: pytest.TempPathFactory, window: int, count: int
) -> None:
    chunk = staged(str(tmp_path_factory.mktemp("chunk")), WHOLE, count * SIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_appends, "WINDOW_BYTES", window)
        pieces = [bytes(piece) for piece in windows(LOCAL, chunk)]
    assert b"".join(pieces) == WHOLE[: count * SIZE]
    assert all(len(piece) % SIZE == 0 for piece in pieces)
    assert all(len(piece) <= max(window, SIZE) for piece in pieces)


WRONG = {
    "ends in the first batch": (WHOLE[:100], 100),
    "ends in the first header": (WHOLE[:9], 9),
    "ends in the last batch": (WHOLE[:-1], len(WHOLE) - 1),
    "announced to end in a batch": (WHOLE, len(WHOLE) - 1),
    "shorter than announced": (WHOLE[: 5 * SIZE], len(WHOLE)),
    "empty": (b"", len(WHOLE)),
    "zeros at the end": (WHOLE + bytes(100), len(WHOLE) + 100),
    "a batch of no length": (WHOLE + WHOLE[:8] + bytes(92), len(WHOLE) + 100),
}


@pytest.mark.parametrize("window", [12, SIZE * 3 + 5, 1 << 20])
@pytest.mark.parametrize("how", WRONG)
def test_a_chunk_that_is_not_whole_batches_is_refused(
    log: Log, monkeypatch: pytest.MonkeyPatch, how: str, window: int
) -> None:
    raw, size = WRONG[how]
    monkeypatch.setattr(chunk_appends, "WINDOW_BYTES", window)
    log.commit([staged(log.path, WHOLE, len(WHOLE))])
    bad = staged(log.path, raw, size)
    with pytest.raises(InvalidRequestError, match=r"sparklog-chunk-test .*nothing was committed"):
        log.commit([bad])
    assert log.offsets("t") == {0: (0, 10)}
    log.commit([staged(log.path, WHOLE, len(WHOLE))])
    values = log.read("t").read_all().column("value").to_pylist()
    assert values == [bytes([n]) * 300 for n in range(10)] * 2


class Meeting(LocalFileSystem):
    """Syncs of partitions' logs wait for one another; that of a path may fail."""

    def __init__(self, count: int, failing: str = "") -> None:
        super().__init__()
        self.barrier, self.failing = threading.Barrier(count), failing
        self.armed = False
        self.met: list[str] = []

    def open(self, path: str, *, create: bool = False, write: bool = False) -> LocalFile:
        file = super().open(path, create=create, write=write)
        if path.endswith(".log") and "/t-" in path:
            sync = file.sync

            def meet() -> None:
                if self.armed:
                    self.barrier.wait(240)
                    self.met.append(path)
                if self.armed and self.failing and self.failing in path:
                    self.armed = False  # taking back meets nobody
                    raise StorageUnavailableError(f"can't sync {path}")
                sync()

            file.sync = meet  # type: ignore[method-assign]
        return file


def test_partitions_are_synced_at_the_same_time(tmp_path: Path) -> None:
    fs = Meeting(4)
    with sparklog.open(tmp_path / "log", "rw", fs=fs) as log:
        log.create_topic("t", 4)
        fs.armed = True
        log.append("t", pa.table({"value": ["v"] * 4, "partition": [0, 1, 2, 3]}))
        fs.armed = False
        assert len(fs.met) == 4
        assert log.offsets("t") == dict.fromkeys(range(4), (0, 1))


def test_a_sync_that_fails_beside_others_takes_all_of_them_back(tmp_path: Path) -> None:
    fs = Meeting(4, failing="t-2")
    rows = pa.table({"value": ["v"] * 4, "partition": [0, 1, 2, 3]})
    with sparklog.open(tmp_path / "log", "rw", fs=fs) as log:
        log.create_topic("t", 4)
        fs.armed = True
        with pytest.raises(StorageUnavailableError, match="t-2"):
            log.append("t", rows)
        fs.armed = False
        assert log.offsets("t") == dict.fromkeys(range(4), (0, 0))
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.append("t", rows)
        assert log.offsets("t") == dict.fromkeys(range(4), (0, 1))
