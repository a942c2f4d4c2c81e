"""`verify --repair` on log-backed checkpoints: what is whole stays, the rest is told."""

import os
import shutil
from pathlib import Path

import pytest

from sparklog.checkpoint import archive, changes, export, fork, history, import_, reset, verify
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.layout import address_of
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append
from sparklog.errors import DataCorruptionError, LogLockedError
from sparklog.fs import LOCAL
from sparklog.service.verification.findings import Severity
from tests.checkpoint.conftest import Golden
from tests.checkpoint.views import tree, view


@pytest.fixture
def path(golden: Golden) -> Path:
    """Batches 8 to 13, log-backed, in which offsets/13 has a newer record."""
    path = golden("hdfs")
    import_(path)
    return path


def spoil(path: Path, file: str, at: int, *, count: int = 1) -> None:
    """Damage the record of a file, `count` bytes from `at` on (negative: from its end)."""
    checkpoint = Checkpoint.open(path)
    where, position = checkpoint.locate(file)
    assert position is not None
    address = address_of(file)
    entry = checkpoint.partitions[address.partition].entries[address.key]
    raw = bytearray(Path(where).read_bytes())
    start = position + (entry.size if at < 0 else 0) + at
    for place in range(start, start + count):
        raw[place] ^= 0x5A
    Path(where).write_bytes(raw)


def kinds(path: Path, **options: bool) -> list[tuple[Severity, bool]]:
    return [(f.severity, f.repaired) for f in verify(path, **options).findings]


def test_a_purged_plan_stops_nothing(path: Path, tmp_path: Path) -> None:
    """One flipped byte in what Spark removed long ago: all goes on, and a repair takes it out."""
    checkpoint = Checkpoint.open(path)
    where, position = checkpoint.locate("offsets/7")
    assert position is not None
    spoil(path, "offsets/7", -20)
    with pytest.raises(DataCorruptionError, match="no newer record of the file"):
        history(path)
    lenient = CheckpointPartition(LOCAL, str(path / "sparklog" / "offsets-0"), lenient=True)
    append(lenient, [Record("7", None, 0)])
    before = view(path)
    assert "offsets/7" not in before
    assert [row.obstacle for row in history(path).batches if row.batch in range(9, 14)] == [
        None
    ] * 5
    (warning,) = [f for f in verify(path).findings if "is no longer needed" in f.what]
    assert (warning.severity, warning.file, warning.position) == (
        Severity.WARNING, where, position,
    )  # fmt: skip
    fork(path, tmp_path / "fork", to=13)
    archive(path, f"file://{tmp_path}/archive")
    copy = shutil.copytree(path, tmp_path / "copy")
    export(copy)
    assert view(copy) == before
    report = verify(path, repair=True)
    assert [(f.severity, f.repaired) for f in report.findings if f.repaired] == [
        (Severity.LEFTOVER, True)
    ]
    assert report.ok
    assert view(path) == before
    assert not [f for f in verify(path).findings if f.severity is Severity.WARNING]
    assert reset(path, to=12).batch == 12


@pytest.mark.parametrize("at", [9, 16, 18, 30, 58, 63, 66])
def test_what_is_known_in_spite_of_the_damage_is_mended(path: Path, at: int) -> None:
    """Also the newest commit: a byte in the header or in the key loses nothing."""
    before, raw = view(path), tree(path)
    spoil(path, "commits/12", at)
    with pytest.raises(DataCorruptionError):
        history(path)
    assert "can't be started" in verify(path).outlook
    report = verify(path, repair=True)
    assert [(f.severity, f.repaired) for f in report.findings if f.repaired] == [
        (Severity.DIFFERENCE, True)
    ]
    assert report.ok, str(report)
    assert view(path) == before
    log = "sparklog/commits-0/00000000000000000000.log"
    assert tree(path)[log] == raw[log]
    aside = [name for name in tree(path) if name.endswith(".damaged")]
    assert aside == [f"{log}.damaged"]
    assert "a repair moved the original here; remove the file when it is no longer needed" in str(
        verify(path)
    )
    (path / aside[0]).unlink()
    assert verify(path).findings == []
    assert view(path) == before


def test_lost_state_of_an_old_batch(path: Path) -> None:
    """The query goes on; what can't be gone back to is damage, still."""
    rows = changes(path, start=13).read_all()
    spoil(path, "state/0/1/9.delta", -20, count=8)
    report = verify(path, repair=True)
    (found,) = [f for f in report.findings if f.repaired]
    assert found.severity is Severity.DAMAGE
    assert "state/0/1/9.delta was removed" in found.what
    assert "continues after batch 13" in report.outlook
    assert not Checkpoint.open(path).exists("state/0/1/9.delta")
    assert changes(path, start=13).read_all() == rows


def test_lost_state_that_the_query_needs(path: Path) -> None:
    spoil(path, "state/0/1/14.delta", -20, count=8)
    report = verify(path, repair=True)
    assert not report.ok
    assert "can't continue after batch 13" in report.outlook
    assert "reset" in report.outlook
    assert "--to 12" in report.outlook
    reset(path, to=12)
    assert "continues after batch 12" in verify(path).outlook


def test_the_last_record(path: Path) -> None:
    """Damaged in the boot in which it was written; mended or left out like any other."""
    with CheckpointLock(LOCAL, str(path / "sparklog")):
        (path / "sparklog" / "sparklog.lock").write_text(f"{LOCAL.boot_id()}\nflush=commit\n")
    before = view(path)
    last = max((e.offset, key) for key, e in Checkpoint.open(path).partitions["offsets-0"].live())[
        1
    ]
    spoil(path, f"offsets/{last}", 66)
    with pytest.raises(DataCorruptionError, match="the last batch is damaged"):
        history(path)
    assert verify(path, repair=True).ok
    assert view(path) == before
    spoil(path, f"offsets/{last}", -20, count=8)
    report = verify(path, repair=True)
    assert f"offsets/{last} was removed" in str(report)
    assert Checkpoint.open(path).exists("offsets/13") == (last != "13")


def test_a_hole_over_several_records(path: Path) -> None:
    """Nobody knows whose they were: the range is told, what is whole stays."""
    before = view(path)
    spoil(path, "offsets/9", 5, count=1500)
    with pytest.raises(DataCorruptionError, match="belongs to is unknown"):
        history(path)
    report = verify(path, repair=True)
    found = [f for f in report.findings if f.repaired]
    assert "a damaged record of an unknown file" in found[0].what
    gone = before.keys() - view(path).keys()
    assert gone
    assert all(name.startswith("offsets/") for name in gone)
    assert found[0].first is not None
    assert verify(path).findings


def test_a_running_query_is_not_repaired(path: Path) -> None:
    spoil(path, "commits/12", 66)
    before = tree(path)
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
        lock.take_running("test")
        with pytest.raises(LogLockedError, match="stop the query, then repair it"):
            verify(path, repair=True)
    assert tree(path) == before


def test_a_second_repair_keeps_the_first_original(path: Path) -> None:
    for _ in range(2):
        spoil(path, "commits/12", 66)
        assert verify(path, repair=True).ok
    names = os.listdir(path / "sparklog" / "commits-0")
    assert sorted(name for name in names if "damaged" in name) == [
        "00000000000000000000.log.damaged", "00000000000000000000.log.damaged.2",
    ]  # fmt: skip


def test_nothing_to_repair(path: Path, golden: Golden) -> None:
    before = tree(path)
    assert verify(path, repair=True).ok
    assert tree(path) == before
    files = golden("changelog")
    before = tree(files)
    assert verify(files, repair=True).ok
    assert tree(files) == before


def test_leader_epochs_are_written_again(path: Path, tmp_path: Path) -> None:
    """With a new epoch at the end: the damaged file may have had one without a record."""
    fork(path, tmp_path / "forked", to=12)
    directory = tmp_path / "forked" / "sparklog" / "offsets-0"
    epochs = directory / "leader-epoch-checkpoint"
    before, end = view(tmp_path / "forked"), CheckpointPartition(LOCAL, str(directory)).next_offset
    epochs.write_bytes(epochs.read_bytes()[:5])
    report = verify(tmp_path / "forked")
    assert "`sparklog checkpoint verify PATH --repair` writes them again" in str(report)
    assert kinds(tmp_path / "forked", repair=True) == [
        (Severity.DIFFERENCE, True), (Severity.LEFTOVER, False),
    ]  # fmt: skip
    assert verify(tmp_path / "forked").ok
    assert view(tmp_path / "forked") == before
    partition = CheckpointPartition(LOCAL, str(directory))
    assert (partition.epoch, partition.next_offset) == (1, end)
    append(partition, [Record("14", b"v1", 0)])


@pytest.mark.parametrize("damaged", [b"", b'{"id":["sparkl', b"\0" * 316])
def test_a_damaged_marker_is_written_again(path: Path, damaged: bytes) -> None:
    marker = (path / "metadata").read_bytes()
    (path / "metadata").write_bytes(damaged)
    with pytest.raises(DataCorruptionError, match="damaged marker"):
        history(path)
    assert kinds(path, repair=True) == [(Severity.DIFFERENCE, True)]
    assert (path / "metadata").read_bytes() == marker
    (path / "metadata").write_bytes(b'{"id":"of another session"}')
    assert not verify(path, repair=True).ok
    assert (path / "metadata").read_bytes() == b'{"id":"of another session"}'


def test_without_the_querys_id_nothing_is_made_of_a_checkpoint(path: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(path, tmp_path / "copy")
    shutil.rmtree(path / "sparklog" / "metadata-0")
    before = tree(path)
    for call in (
        lambda: fork(path, tmp_path / "forked", to=12),
        lambda: reset(path, to=12, dry_run=True),
        lambda: archive(path, (tmp_path / "points").as_uri()),
    ):
        with pytest.raises(DataCorruptionError, match="lost the query id"):
            call()
    assert "can't be started" in verify(path).outlook
    assert tree(path) == before
    assert history(path).batches
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    assert reset(path, to=12, dry_run=True).batch == 12
