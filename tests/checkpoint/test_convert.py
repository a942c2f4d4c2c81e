"""Files become records and come back, and nothing is lost on the way, wherever it is cut."""

import os
import shutil
from pathlib import Path
from stat import S_IMODE

import pytest

import sparklog
from sparklog.checkpoint import export, fork, history, import_, reset, verify
from sparklog.checkpoint.log_backed.layout import path_of, stays_file
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append
from sparklog.errors import DataCorruptionError, InvalidRequestError, LogLockedError
from sparklog.fs import LOCAL
from sparklog.service import erase
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from tests.checkpoint.conftest import NAMES, Golden
from tests.checkpoint.shared_disk import Shared
from tests.checkpoint.views import load, tree, view


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(golden: Golden, name: str) -> None:
    path = golden(name)
    before, said = view(path), history(path)
    done = import_(path)
    assert view(path) == before
    assert done.files == sum(not stays_file(p) for p in before)
    left = [p for p in tree(path) if not p.startswith("sparklog/") and not stays_file(p)]
    assert left == ["metadata"]  # the mark
    there = history(path)
    assert there.is_log_backed
    assert there.batches == said.batches
    report = verify(path)
    assert report.findings == [], str(report)
    export(path)
    assert view(path) == before
    assert not (path / "sparklog").exists()
    assert history(path) == said
    assert verify(path).findings == []
    assert [p.name for p in path.parent.iterdir()] == [name]


def test_a_log_dir_on_a_shared_disk_is_converted_to_runs(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an export and an import. A copy of a log-backed checkpoint brings a log dir there."""
    monkeypatch.setattr("sparklog.checkpoint.running_query.QUIET_MS", 0)  # it was just written
    path, copy, fs = golden("stateless"), tmp_path / "copy", Shared()
    import_(path)
    last = max(row.batch for row in history(path).batches if row.obstacle is None)
    fork(path, copy, to=last)
    assert history(copy).kind == "log-backed"
    before = view(copy)
    export(copy, fs=fs)
    assert view(copy) == before
    import_(copy, fs=fs)
    assert history(copy).kind == "in runs"
    assert history(copy).batches[-1].batch == last


def test_few_files_are_left(golden: Golden) -> None:
    path = golden("join")
    import_(path)
    stores = 8
    assert len(tree(path)) == 2 + 2 * (3 + stores)  # lock file and mark; two a partition


def test_its_log_is_not_opened_for_writing(golden: Golden, tmp_path: Path) -> None:
    """As a broker's directory it would be given a ledger, retention, other log dirs."""
    path = golden("hdfs")
    import_(path)
    before = tree(path)
    for log in (f"{path}/sparklog", f"{path}/sparklog,{tmp_path}/disk2"):
        with pytest.raises(InvalidRequestError, match="is the log of a query's checkpoint"):
            sparklog.open(log, "rw")
    with pytest.raises(InvalidRequestError, match="is the log of a query's checkpoint"):
        erase(f"{path}/sparklog", "offsets", [b"0"])
    assert tree(path) == before
    with sparklog.open(f"{path}/sparklog") as log:
        assert log.read("offsets").read_all().num_rows
    assert verify(path).findings == []


def test_kafka_format_readers_take_it(golden: Golden) -> None:
    path = golden("hdfs")
    before = view(path)
    import_(path)
    with sparklog.open(path / "sparklog", until="log-end") as log:
        found = {}
        for topic in log.topics():
            for row in log.read(topic).read_all().to_pylist():
                name = path_of(f"{topic}-{row['partition']}", row["key"].decode())
                found[name] = row["value"]
    assert found == before


def test_a_record_wins_over_a_file_of_before(golden: Golden) -> None:
    path = golden("stateless")
    import_(path)
    append(
        CheckpointPartition(LOCAL, str(path / "sparklog/metadata-0")),
        [Record("more/12", b"new", 1)],
    )
    (path / "more").mkdir()
    (path / "more" / "12").write_text("stale")
    assert view(path)["more/12"] == b"new"
    import_(path)
    assert not (path / "more" / "12").exists()
    assert view(path)["more/12"] == b"new"


def test_a_deleted_record_does_not_hide_a_file(golden: Golden) -> None:
    path = golden("stateless")
    import_(path)
    for value in (b"old", None):
        append(
            CheckpointPartition(LOCAL, str(path / "sparklog/metadata-0")),
            [Record("more/12", value, 1)],
        )
    assert "more/12" not in view(path)
    (path / "more").mkdir()
    (path / "more" / "12").write_text("new")
    assert view(path)["more/12"] == b"new"
    import_(path)
    assert not (path / "more" / "12").exists()
    assert view(path)["more/12"] == b"new"


def test_refused_while_the_query_runs(golden: Golden) -> None:
    path = golden("hdfs")
    import_(path)
    with CheckpointLock(LOCAL, str(path / "sparklog")) as lock:
        lock.take_running("run")
        for call in (import_, export):
            with pytest.raises(LogLockedError, match="a query runs"):
                call(path)
    export(path)


def test_damage_is_not_exported(golden: Golden) -> None:
    path = golden("hdfs")
    import_(path)
    log = path / "sparklog/state.0.default-0/00000000000000000000.log"
    raw = bytearray(log.read_bytes())
    raw[100] ^= 1
    log.write_bytes(raw)
    with pytest.raises(DataCorruptionError):
        export(path)
    assert log.read_bytes() == raw
    (finding,) = [f for f in verify(path).findings if f.file == str(log)]
    assert finding.position == 0


def test_a_damaged_last_record_is_no_write_that_was_cut_off(golden: Golden) -> None:
    """But for a power cut: a record that was acknowledged mustn't be left out, then forgotten."""
    path = golden("hdfs")
    import_(path)
    log = path / "sparklog/offsets-0/00000000000000000000.log"
    raw = bytearray(log.read_bytes())
    raw[-20] ^= 1
    log.write_bytes(raw)
    lock = path / "sparklog/sparklog.lock"
    lock.write_text(f"{LOCAL.boot_id()}\nflush=commit\n")
    for call in (export, import_, history):
        with pytest.raises(DataCorruptionError, match="the last batch is damaged") as caught:
            call(path)
    with pytest.raises(DataCorruptionError, match="the last batch is damaged"):
        reset(path, to=9)
    assert log.read_bytes() == raw
    fork(path, path.with_name("new"), to=12)
    assert verify(path.with_name("new")).findings == []
    with pytest.raises(InvalidRequestError, match="can't go back to batch 13"):
        fork(path, path.with_name("newer"), to=13)
    found = [f for f in verify(path).findings if f.file == str(log)]
    assert [(f.severity, f.position) for f in found] == [("damage", caught.value.position)]
    lock.write_text("another boot\nflush=commit\n")
    assert history(path).batches[-1].batch == 13  # its commit is there
    (finding,) = [f for f in verify(path).findings if f.file == str(log)]
    assert finding.severity == "leftover"


def test_verify_names_the_place_within_a_record(golden: Golden) -> None:
    path = golden("hdfs")
    for checksum in path.rglob("*.crc"):
        checksum.unlink()
    delta = path / "state/0/0/12.delta"
    raw = bytearray(delta.read_bytes())
    raw[-21] ^= 1  # the end mark's magic
    delta.write_bytes(raw)
    import_(path)
    finding = verify(path).findings[0]
    segment = Path(finding.file).read_bytes()
    assert finding.position is not None
    assert segment[finding.position : finding.position + 21] == raw[-21:]


def kill_everywhere(source: Path, call: object, before: dict[str, bytes]) -> int:
    """Kill it at every call; the same call again does the rest. Returns the number of calls."""
    number = 0
    while True:
        number += 1
        fs = CrashFS()
        load(fs, source, "/c")
        fs.fail_at(number, Fault.KILL)
        try:
            call("/c", fs=fs)  # type: ignore[operator]
        except SimulatedKill:
            pass
        else:
            assert view("/c", fs) == before
            return number
        afters = [fs.kill_clone(), fs.crash_clone(mode="strict"), fs.crash_clone(mode="all")]
        for after in afters:
            assert view("/c", after) == before
        for after in afters[: 1 + number % 2]:
            call("/c", fs=after)  # type: ignore[operator]
            assert view("/c", after.crash_clone(mode="strict")) == before


def small(golden: Golden) -> Path:
    """A checkpoint of few files: some of each kind."""
    path = golden("changelog")
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        keep = name in ("metadata", ".metadata.crc") or name.endswith(
            ("/13", "/12", ".13.crc", "0/0/12.zip", "0/0/.12.zip.crc", "0/0/13.changelog")
        )
        if file.is_file() and not keep:
            file.unlink()
    return path


def test_import_killed_at_every_call(golden: Golden) -> None:
    path = small(golden)
    assert kill_everywhere(path, import_, view(path)) > 30


def test_export_killed_at_every_call(golden: Golden) -> None:
    path = small(golden)
    before = view(path)
    import_(path)
    assert kill_everywhere(path, export, before) > 30


@pytest.mark.parametrize("file", ["metadata/v1.metadata.json", "sparklog/config.yaml"])
def test_what_is_no_checkpoint_stays_as_it_is(tmp_path: Path, file: str) -> None:
    """An Iceberg table has a directory of that name, a project of ours the other."""
    for name in (file, "data/a.parquet"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    before = tree(tmp_path)
    for call in (import_, export, verify, history):
        with pytest.raises(InvalidRequestError, match="is not the checkpoint of a streaming query"):
            call(tmp_path)
    with pytest.raises(InvalidRequestError, match="must be on a local disk"):
        import_("")
    assert tree(tmp_path) == before


def test_whoever_does_it_the_files_stay_the_querys(golden: Golden) -> None:
    """Root resets a user's checkpoint: he goes on with it, and others read no more of it."""
    path = golden("processed")
    owner = (12345, 54321) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for place in [path, *path.rglob("*")]:
        os.chown(place, *owner)
        place.chmod(0o750 if place.is_dir() else 0o640)

    def check(root: Path) -> None:
        for place in [root, *root.rglob("*")]:
            stat = place.stat()
            wanted = 0o750 if place.is_dir() else 0o640
            assert (S_IMODE(stat.st_mode), (stat.st_uid, stat.st_gid)) == (wanted, owner), place

    for backed in (False, True):
        if backed:
            import_(path)
            check(path)
        new = path.with_name(f"new-{backed}")
        fork(path, new, to=3)
        check(new)
        reset(path, to=4 - backed)
        check(path)
    shutil.rmtree(path / "commits")
    export(path)
    check(path)
