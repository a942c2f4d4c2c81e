"""The file sink's log: read up to a batch, whatever was compacted and removed, and written."""

import json
import re
from pathlib import Path

import pytest

from sparklog.checkpoint.spark_files.file_sink_log import (
    FileSinkLog,
    compact_interval,
    file_of,
    moved,
    write_sink_log,
)
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL

Entry = dict[str, object]


def entry(batch: int, time: int | None = None) -> Entry:
    time = 100 * batch if time is None else time
    return {"path": f"file:///out/part-{batch}%20x", "size": 1, "modificationTime": time}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """13 batches, one file each, compacted at 4 and 9."""
    (tmp_path / "_spark_metadata").mkdir()
    for batch in range(13):
        is_compact = batch in (4, 9)
        entries = [entry(b) for b in (range(batch + 1) if is_compact else [batch])]
        name = f"{batch}.compact" if is_compact else str(batch)
        lines = ["v1", *map(json.dumps, entries)]
        (tmp_path / "_spark_metadata" / name).write_text("\n".join(lines))
    return tmp_path


def batches(root: Path, batch: int, planned: int | None = None) -> list[int]:
    found = FileSinkLog.open(LOCAL, str(root)).entries(batch, planned)
    return [int(str(e["modificationTime"])) // 100 for e in found]


@pytest.mark.parametrize("batch", range(13))
def test_entries(log: Path, batch: int) -> None:
    assert batches(log, batch) == list(range(batch + 1))
    for old in range(9):
        for name in (str(old), f"{old}.compact"):
            (log / "_spark_metadata" / name).unlink(missing_ok=True)
    assert batches(log, batch, 100 * batch + 50) == list(range(batch + 1))
    if batch < 9:
        with pytest.raises(InvalidRequestError, match="Go back to a batch"):
            batches(log, batch)


@pytest.mark.parametrize("batch", range(13))
def test_what_is_written_is_read(log: Path, batch: int) -> None:
    """And it is a log that Spark can compact again: all files since the last compaction."""
    entries = FileSinkLog.open(LOCAL, str(log)).entries(batch, None)
    write_sink_log(LOCAL, str(log / "new"), entries, batch, 5)
    (log / "_spark_metadata").rename(log / "old")
    (log / "new").rename(log / "_spark_metadata")
    again = FileSinkLog.open(LOCAL, str(log))
    assert again.newest == batch
    assert again.entries(batch, None) == entries
    first = max(again.compacted, default=-1) + 1
    assert again.batches == frozenset(range(first, batch + 1))


def test_times_out_of_order_are_refused(log: Path) -> None:
    """A file of a later batch that is older than one of an earlier batch, in a compacted file."""
    for old in (*range(4), *range(5, 9)):
        (log / "_spark_metadata" / str(old)).unlink()
    (log / "_spark_metadata/4.compact").unlink()
    compact = log / "_spark_metadata/9.compact"
    lines = ["v1", *(json.dumps(entry(b, 1 if b == 8 else 100 * b)) for b in range(10))]
    compact.write_text("\n".join(lines))
    with pytest.raises(InvalidRequestError, match="not in the order of the batches") as caught:
        batches(log, 5, 550)
    advice = "has a separate file in .*, or to batch 9$"
    assert re.search(advice, str(caught.value))
    for own in (9, 10, 11, 12):
        assert len(batches(log, own, 100 * own + 50)) == own + 1


def test_what_is_no_log(log: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no query with Spark's file sink"):
        FileSinkLog.open(LOCAL, str(tmp_path / "_spark_metadata"))
    assert FileSinkLog.open(LOCAL, str(tmp_path)).newest == 12  # the directory it is written to
    with pytest.raises(InvalidRequestError, match=r"newest batch in .* is 12, so"):
        batches(log, 13)
    (log / "_spark_metadata/11").unlink()
    with pytest.raises(DataCorruptionError, match="no files for some of the batches 10 to 12"):
        batches(log, 12)
    (log / "_spark_metadata/11").write_text("v2\n")
    with pytest.raises(DataCorruptionError, match="the version is 'v2'"):
        batches(log, 12)


@pytest.mark.parametrize(
    ("compacted", "interval"),
    [([], 10), ([9], 10), ([4], 5), ([9, 19], 10), ([19], 20), ([29], 10), ([28], 29), ([34], 35)],
)
def test_interval(compacted: list[int], interval: int) -> None:
    """As CompactibleFileStreamLog.compactInterval."""
    assert compact_interval(compacted) == interval


def test_paths_are_urls() -> None:
    one = entry(3)
    assert file_of(one) == "/out/part-3 x"
    assert moved(one, "/new dir/k=a%b/part-3 x")["path"] == "file:///new%20dir/k=a%25b/part-3%20x"
    assert file_of(moved(one, "/new dir/k=a%b/ü#?")) == "/new dir/k=a%b/ü#?"
