"""The columns of docs/sizing.md that a small log tells: files and disk by partitions."""

import re
from pathlib import Path

import pyarrow as pa

import sparklog
from tests.paths import ROOT

BLOCK = 4096


def taken(path: Path, partitions: int) -> tuple[int, int]:
    """Return the files of a closed log with three records in each partition, and their bytes."""
    numbers = [n % partitions for n in range(3 * partitions)]
    rows = pa.table({"value": [b"x" * 100] * len(numbers), "partition": pa.array(numbers, "int32")})
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions)
        log.append("t", rows)
    entries = list(path.rglob("*"))
    blocks = sum(-(-each.stat().st_size // BLOCK) if each.is_file() else 1 for each in entries)
    return sum(each.is_file() for each in entries), blocks * BLOCK


def test_files_and_disk_by_partitions(tmp_path: Path) -> None:
    (few, few_bytes), (more, more_bytes) = (taken(tmp_path / str(n), n) for n in (4, 8))
    page = (ROOT / "docs/sizing.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d.]+) MB \|", page, re.MULTILINE)
    assert len(rows) == 3
    for partitions, files, megabytes in rows:
        n = int(partitions.replace(",", ""))
        assert int(files.replace(",", "")) == few + (more - few) * (n - 4) // 4
        found = few_bytes + (more_bytes - few_bytes) * (n - 4) / 4
        assert abs(found / 1e6 - float(megabytes)) <= max(0.05, found / 1e6 * 0.03)
