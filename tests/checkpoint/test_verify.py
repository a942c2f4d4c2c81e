"""Verify finds what is damaged and names it; it finds nothing in what Spark wrote."""

import contextlib
import json
from pathlib import Path

import pytest

from sparklog.checkpoint.state_files import plain
from sparklog.checkpoint.verify import verify
from sparklog.errors import DataCorruptionError
from sparklog.service.checks.report import Finding, Severity
from tests.checkpoint.conftest import NAMES, Golden


def damage(path: Path) -> list[Finding]:
    return [f for f in verify(path).findings if f.severity is Severity.DAMAGE]


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


def without_checksums(path: Path) -> Path:
    for checksum in path.rglob("*.crc"):
        checksum.unlink()
    return path


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_what_spark_wrote(golden: Golden, name: str) -> None:
    report = verify(golden(name))
    assert (report.ok, report.findings) == (True, []), str(report)
    assert report.latest == max(report.batches) or report.latest == max(report.batches) - 1
    assert report.table().num_rows == 0
    json.dumps(report.to_dict())


STATE = [
    ("hdfs", "state/0/0/12.delta"), ("hdfs", "state/0/1/10.snapshot"),
    ("hdfs-zstd", "state/0/0/3.delta"), ("files", "state/0/0/3.delta"),
    ("changelog", "state/0/0/13.changelog"), ("changelog", "state/0/0/12.zip"),
    ("rocksdb", "state/0/0/4.zip"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "file"), STATE)
def test_a_state_file_that_is_cut(golden: Golden, name: str, file: str) -> None:
    """By its own format, wherever it is cut."""
    path = without_checksums(golden(name))
    raw = (path / file).read_bytes()
    for size in range(0, len(raw), max(1, len(raw) // 7)):
        (path / file).write_bytes(raw[:size])
        found = damage(path)
        assert str(path / file) in {f.file for f in found}, size


@pytest.mark.parametrize(("name", "file"), STATE)
def test_a_bit_in_a_state_file(golden: Golden, name: str, file: str) -> None:
    """The checksums beside it tell, with the place."""
    path = golden(name)
    size = (path / file).stat().st_size
    for at in range(0, size, max(1, size // 7)):
        flip(path / file, at)
        if name != "hdfs-zstd":
            found = [f for f in damage(path) if f.file == str(path / file)]
            assert any(f.position is not None for f in found)
        flip(path / file, at)
    assert verify(path).ok


def test_lz4_blocks_have_checksums(golden: Golden) -> None:
    raw = (golden("hdfs") / "state/0/0/12.delta").read_bytes()
    good = plain(raw, "p")
    for at in range(21, len(raw) - 21):
        bad = bytearray(raw)
        bad[at] ^= 0x10
        with contextlib.suppress(DataCorruptionError):
            assert plain(bytes(bad), "p") == good  # another way to pack the same


def test_spark_and_hadoop_checksums(golden: Golden) -> None:
    path = golden("ids")
    (sst,) = (path / "state/0/0/SSTs").glob("000008*.sst")
    flip(sst, 600)
    assert [(f.file, f.position) for f in damage(path)] == [(str(sst), 512)]
    flip(sst, 600)
    (changelog,) = (path / "state/0/0").glob("3_*.changelog")
    (changelog.parent / f".{changelog.name}.crc").unlink()
    flip(changelog, 4)
    assert any("differs from its checksum" in f.what for f in damage(path))


def test_what_a_batch_misses(golden: Golden) -> None:
    path = golden("hdfs")
    (path / "commits/10").unlink()
    (path / "offsets/11").unlink()
    missing = {f.file for f in damage(path) if f.what == "it is missing"}
    assert missing == {str(path / "commits/10"), str(path / "offsets/11")}
    (path / "state/0/1/14.delta").unlink()
    last = [f for f in damage(path) if f.file == str(path / "commits/13")]
    assert "14.delta" in last[0].what


def test_old_state_that_was_cleaned_up_is_a_warning(golden: Golden) -> None:
    path = golden("files")
    for version in range(1, 5):
        for part in "01":
            (path / f"state/0/{part}/{version}.delta").unlink()
    report = verify(path)
    assert report.ok
    assert report.counts()["warning"] == 10  # from the snapshot 11 on it is all there


def test_leftovers(golden: Golden) -> None:
    path = golden("stateless")
    (path / "offsets/.12.5e.tmp").write_bytes(b"")
    (path / "sparklog.reset").write_text("{}")
    report = verify(path)
    assert report.ok
    assert [f.severity for f in report.findings] == [Severity.LEFTOVER] * 2


def test_an_upload_that_was_cut_off_is_no_damage(golden: Golden) -> None:
    """RocksDB's files come before the snapshot that names them; until then nobody needs them."""
    path = golden("changelog")
    shared = path / "state/0/0/SSTs"
    (shared / "000099-new.sst").write_bytes(b"half")
    (shared / ".000099-new.sst.crc").write_bytes(b"cr")
    assert verify(path).findings == []


def test_a_lost_query_id(golden: Golden) -> None:
    """Spark draws another one then, without a word, and sinks take old batches for new ones."""
    path = golden("hdfs")
    (path / "metadata").unlink()
    assert [f.file for f in damage(path)] == [str(path / "metadata")]
