"""Verify finds what is damaged and names it; it finds nothing in what Spark wrote."""

import contextlib
import itertools
import json
import shutil
from pathlib import Path

import pytest

from sparklog.checkpoint import archive, import_, restore
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.history import history
from sparklog.checkpoint.spark_files.state_files import plain
from sparklog.checkpoint.verify import verify
from sparklog.errors import DataCorruptionError, InvalidRequestError, LogLockedError
from sparklog.service.verification.findings import Finding, Severity
from tests.checkpoint.conftest import NAMES, Golden


def test_a_directory_that_is_no_checkpoint(golden: Golden, tmp_path: Path) -> None:
    advice = "not the checkpoint of a streaming query: use the query's checkpointLocation"
    with pytest.raises(InvalidRequestError, match=advice):
        verify(tmp_path)
    assert verify(golden("hdfs")).ok


def test_where_no_batch_can_be_gone_back_to_the_checkpoint_is_restored(
    golden: Golden, tmp_path: Path
) -> None:
    path, url = golden("hdfs"), f"file://{tmp_path}/archive"
    archive(path, url)
    for file in (path / "state/0/1").glob("[0-9]*"):
        file.unlink()
    advice = "no batch is complete: restore the checkpoint from an archive, or use a new checkpoint"
    assert advice in verify(path).outlook
    shutil.rmtree(path)
    restore(url, path)
    assert verify(path).outlook == "the query continues after batch 13"


def test_a_log_that_is_gone_is_restored(golden: Golden, tmp_path: Path) -> None:
    path = golden("hdfs")
    import_(path)
    copy = shutil.copytree(path, tmp_path / "copy")
    shutil.rmtree(path / "sparklog")
    advice = "the checkpoint from a copy, or start the query with a new checkpoint directory"
    with pytest.raises(DataCorruptionError, match=advice):
        history(path)
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    assert verify(path).ok


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


@pytest.mark.parametrize("name", ["global", "limit", "repartitioned-global"])
def test_all_rows_in_one_partition_is_no_loss(golden: Golden, name: str) -> None:
    """Whatever the conf says; of that one partition all is needed."""
    path = golden(name)
    batches = Batches(Checkpoint.open(path))
    lost = [b for b in batches.committed if batches.obstacle(b)]
    assert lost == ([3] if name == "repartitioned-global" else [])
    newest = max(int(f.stem) for f in (path / "state/0/0").glob("[0-9]*.*") if f.stem.isdecimal())
    for file in (path / "state/0/0").glob(f"{newest}.*"):
        file.unlink()
    assert not verify(path).ok


@pytest.mark.parametrize("name", ["repartitioned", "repartitioned-ids"])
def test_each_batch_has_the_partitions_that_it_says(golden: Golden, name: str) -> None:
    """Two, three, then one: by its plan or its commit, for the operator's metadata stay at two."""
    path = golden(name)
    batches = Batches(Checkpoint.open(path))
    counts = [batches.partitions(0, b) for b in (0, 2, 4, 5, 7, 11)]
    assert counts == [2, 2, 3, 3, 1, 1]
    assert [b for b in batches.committed if batches.obstacle(b)] == [3, 6]
    report = verify(path)
    assert [f.severity for f in report.findings] == [Severity.WARNING] * 2
    assert all("offline repartition skipped this batch" in f.what for f in report.findings)
    for file in (path / "state/0/2").glob("6[._]*"):  # of batch 5, when there were three
        file.unlink()
    assert str(path / "commits/5") in {f.file for f in damage(path)}


def test_gaps_of_asynchronous_progress_tracking(golden: Golden) -> None:
    """The plan before a batch is the one that is there; a query with state has no gaps."""
    path = golden("async")
    rows = history(path).batches
    assert [row.obstacle for row in rows] == [None] * len(rows)
    assert [row.rows["0"] for row in rows[1:]] == [
        40 * (b.batch - a.batch) for a, b in itertools.pairwise(rows)
    ]
    (finding,) = verify(path).findings
    assert "asynchronous progress tracking" in finding.what
    stateful = golden("hdfs")
    (stateful / "commits/10").unlink()
    (stateful / "offsets/10").unlink()
    assert {f.file for f in damage(stateful)} >= {str(stateful / "offsets/10")}


def test_what_looks_like_damage_is_looked_for_again(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running query commits a batch and plans the next one, between two of our listings."""
    path = golden("stateless")
    hidden = (path / "commits/10").read_bytes()
    (path / "commits/10").unlink()
    real, looks = Checkpoint.inspect, 0

    def inspect(*args: object) -> Checkpoint:
        nonlocal looks
        looks += 1
        if looks == 2:
            (path / "commits/10").write_bytes(hidden)
        if looks == 3:  # another one, which is whole
            (path / "commits/9").unlink()
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Checkpoint, "inspect", inspect)
    assert verify(path).ok
    assert looks == 2
    assert {f.file for f in damage(path)} == {str(path / "commits/9")}  # it stays lost


def test_files_that_vanish_while_they_are_looked_at(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden("hdfs")
    real = Checkpoint.stat

    def stat(self: Checkpoint, name: str) -> object:
        if name == "offsets/8":
            (path / name).unlink(missing_ok=True)
        return real(self, name)

    monkeypatch.setattr(Checkpoint, "stat", stat)
    verify(path)
    assert not (path / "offsets/8").exists()

    def gone(*args: object) -> Checkpoint:
        raise FileNotFoundError(2, "gone", str(path / "state/0/0"))

    monkeypatch.setattr(Checkpoint, "inspect", gone)
    with pytest.raises(LogLockedError, match=r"removed .*state/0/0 while the checkpoint was read"):
        verify(path)


def test_what_a_batch_misses(golden: Golden) -> None:
    path = golden("hdfs")
    (path / "commits/10").unlink()
    (path / "offsets/11").unlink()
    missing = {f.file for f in damage(path) if f.what == "the file is missing"}
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
