"""Forks of checkpoints that Spark made: what is in them, and that the original stays."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import sparklog
from sparklog.checkpoint import fork, history, import_, verify
from sparklog.checkpoint.log_backed.layout import METADATA_PARTITION, RUNS, stays_file
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append, clean
from sparklog.cli.app import app
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, LogLockedError, StorageUnavailableError
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.fs.files import LocalFile
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.service import Service
from sparklog.tiered.restoring import restore as restore_log
from tests.checkpoint.conftest import NAMES, Golden
from tests.checkpoint.views import commit, read, tree, view


def numbers(path: Path, directory: str) -> list[int]:
    return sorted(int(p.rpartition("/")[2]) for p in view(path) if p.startswith(f"{directory}/"))


BOTH = [(name, False) for name in NAMES] + [(name, True) for name in ("hdfs", "ids", "processed")]


@pytest.mark.parametrize(("name", "backed"), BOTH)
def test_a_fork_to_each_batch(golden: Golden, name: str, backed: bool) -> None:
    path = golden(name)
    if backed:
        import_(path)
    before, original = view(path), tree(path)
    reachable = [row.batch for row in history(path).batches if row.obstacle is None]
    for batch in (reachable[len(reachable) // 2], reachable[-1]):
        new = path.with_name(f"fork-{batch}")
        done = fork(path, new, to=batch)
        assert (done.batch, done.new_path) == (batch, str(new))
        after = view(new)
        assert numbers(new, "offsets")[-1] == numbers(new, "commits")[-1] == batch
        changed = {p for p in after if after[p] != before[p]}
        assert changed == ({"state/0/_metadata/v2/0"} if name == "processed" else set())
        versions = [row.state_version for row in history(new).batches]
        if versions[-1] is not None:
            assert versions[-1] == batch + 1
            assert max(_versions(new)) == batch + 1
        report = verify(new)
        assert (report.findings, report.latest) == ([], batch), str(report)
        assert [r.batch for r in history(new).batches if r.obstacle is None] == [
            b for b in reachable if b <= batch
        ]
    assert tree(path) == original


def _versions(path: Path) -> list[int]:
    names = [p.rpartition("/")[2] for p in view(path) if p.startswith("state/")]
    stems = [n.split(".")[0].split("_")[0] for n in names if n.count(".")]
    return [int(stem) for stem in stems if stem.isdecimal()]


def test_files_are_links_and_records_stay_bytes(golden: Golden) -> None:
    path = golden("changelog")
    fork(path, path.with_name("a"), to=11)
    a = path.with_name("a")
    for name in tree(a):
        assert os.stat(a / name).st_ino == os.stat(path / name).st_ino, name
    import_(path)
    fork(path, path.with_name("b"), to=11)
    source = CheckpointPartition(LOCAL, str(path / "sparklog/offsets-0"))
    copy = CheckpointPartition(LOCAL, str(path.with_name("b") / "sparklog/offsets-0"))
    assert copy.entries == {k: e for k, e in source.entries.items() if int(k) <= 11}
    assert np.array_equal(copy.segments[0].tables[0], source.segments[0].tables[0][:4])
    (first, second) = read_epochs(LOCAL, copy.directory)
    assert (first, second) == ((0, 0), (1, copy.next_offset))
    append(copy, [Record("12", b"other", 5)])
    assert int(copy.segments[0].tables[-1]["leader_epoch"][-1]) == 1


def test_whole_closed_segments_are_linked(tmp_path: Path, golden: Golden) -> None:
    path = golden("hdfs")
    import_(path)
    big = CheckpointPartition(LOCAL, str(path / "sparklog/state.0.default-0"))
    for n in range(20):  # old versions' records are dead by now, but of no dropped file
        append(big, [Record("1.delta", bytes(1000), n)], segment_bytes=5000)
    done = fork(path, tmp_path / "new", to=13)
    copy = CheckpointPartition(LOCAL, str(tmp_path / "new/sparklog/state.0.default-0"))
    closed = [s.base for s in big.segments[:-1]]
    assert len(closed) > 3
    assert [s.base for s in copy.segments] == [s.base for s in big.segments]
    assert [s.identity for s in copy.segments[:-1]] == [s.identity for s in big.segments[:-1]]
    assert copy.segments[-1].identity != big.segments[-1].identity
    assert done.linked_bytes == sum(s.end for s in big.segments[:-1])
    append(copy, [Record("x", b"y", 1)])
    big.refresh()
    assert "x" not in big.entries


def test_schemas_are_found_at_the_new_place(golden: Golden) -> None:
    path = golden("processed")
    for backed in (False, True):
        if backed:
            import_(path)
        new = path.with_name(f"new-{backed}")
        fork(path, new, to=3)
        document = json.loads(view(new)["state/0/_metadata/v2/0"].decode().partition("\n")[2])
        (file,) = document["stateStoreInfo"][0]["stateSchemaFilePaths"]
        assert file.startswith(f"file:{new}/state/0/_stateSchema/default/")
        assert file.removeprefix(f"file:{new}/") in view(new)


def test_a_file_source_sees_later_files_anew(golden: Golden) -> None:
    path = golden("files")
    new = path.with_name("new")
    fork(path, new, to=7)
    entries = {p.rpartition("/")[2] for p in view(new) if p.startswith("sources/0/")}
    assert entries == set("01234567")


def test_sst_files_of_dropped_snapshots_go(golden: Golden) -> None:
    path = golden("changelog")
    new = path.with_name("new")
    fork(path, new, to=10)
    assert len([p for p in tree(new) if p.endswith(".sst")]) == 4  # two partitions, up to 8.zip
    assert all(stays_file(p) for p in tree(new) if "/SSTs/" in p)


# -- what to go back to ----------------------------------------------------------------------------


def test_runs_of_the_original_are_none_of_the_forks(golden: Golden, tmp_path: Path) -> None:
    """Else the tasks of the original's run could write to the fork as well."""
    path = golden("stateless")
    import_(path)
    metadata = CheckpointPartition(LOCAL, str(path / "sparklog" / METADATA_PARTITION))
    append(metadata, [Record(RUNS, b"run-b\nrun-a", 1)])
    fork(path, tmp_path / "new", to=9)
    forked = CheckpointPartition(LOCAL, str(tmp_path / "new" / "sparklog" / METADATA_PARTITION))
    assert forked.read(RUNS) is None
    metadata.refresh()
    assert metadata.read(RUNS) == b"run-b\nrun-a"


def test_by_time(golden: Golden) -> None:
    path = golden("hdfs")
    planned = {row.batch: row.planned_ms for row in history(path).batches}
    at = datetime.fromtimestamp((planned[10] or 0) / 1000, UTC)
    assert fork(path, path.with_name("a"), to=at).batch == 10
    assert fork(path, path.with_name("b"), to=at - timedelta(milliseconds=1)).batch == 9
    assert fork(path, path.with_name("c"), to=at + timedelta(days=1)).batch == 13
    with pytest.raises(
        InvalidRequestError,
        match=r"no committed batch was planned by .*; to list the batches, run `sparklog ",
    ) as caught:
        fork(path, path.with_name("d"), to=at - timedelta(days=1))
    words = str(caught.value).partition("run `sparklog ")[2].rstrip("`").split()
    shown = CliRunner().invoke(app, [*words, "--json"])
    batches = json.loads(shown.stdout)["batches"]
    first = next(row for row in batches if row["can_go_back"])
    fork(path, path.with_name("d"), to=datetime.fromisoformat(first["planned"]))
    assert verify(path.with_name("d")).latest == first["batch"]
    with pytest.raises(InvalidRequestError, match="no time zone"):
        fork(path, path.with_name("e"), to=datetime(2030, 1, 1))


def with_topics(path: Path) -> Path:
    """Let every batch read topic t: ten rows a partition."""
    for file in (path / "offsets").glob("[0-9]*"):
        lines = file.read_text().split("\n")
        end = int(file.name) * 10
        lines[2] = json.dumps({"t": {"0": end, "1": end + 5}})
        file.write_text("\n".join(lines))
    for checksum in (path / "offsets").glob(".*.crc"):
        checksum.unlink()
    return path


WRONG: list[Any] = [{"offsets": {"t": limits}} for limits in (
    3, {"a": 1}, {"0": None}, {"0": "x"}, {"0": float("inf")}, {"0": 1.5},
)]  # fmt: skip


def test_by_offsets(golden: Golden) -> None:
    path = with_topics(golden("hdfs"))
    assert fork(path, path.with_name("a"), to={"offsets": {"t": {"0": 100}}}).batch == 10
    assert fork(path, path.with_name("b"), to={"offsets": {"t": {"0": 109, "1": 104}}}).batch == 9
    for to in ({"offsets": {"t": {"0": 3}}}, {"offsets": {"u": {"0": 300}}}):
        with pytest.raises(InvalidRequestError, match="ends at or before the given offsets"):
            fork(path, path.with_name("c"), to=to)
    for to in ({"offsets": {}}, {"offset": {"t": {"0": 3}}}, "9", True, {"offsets": 3}, *WRONG):
        with pytest.raises(InvalidRequestError, match="must "):
            fork(path, path.with_name("c"), to=to)  # type: ignore[arg-type]


COPIED = {
    "remote.storage.enable": "true", "internal.segment.bytes": 1800, "segment.idle.ms": 1,
    "retention.ms": -1,
}  # fmt: skip


def test_retention_that_has_passed(golden: Golden, tmp_path: Path) -> None:
    path = with_topics(golden("hdfs"))
    with sparklog.open(tmp_path / "in", mode="rw") as log:
        log.create_topic("t", partitions=2, config=COPIED)
        for partition in range(2):
            for count in (200, 1):
                log.append("t", pa.table({"value": [b"x"] * count}), partition=partition)
    with Service(tmp_path / "in", remote=f"file://{tmp_path}/copies") as service:
        assert not service.run_once().errors
    with sparklog.open(tmp_path / "in", mode="rw") as log:
        log.delete_records("t", {0: 95})
    sources = {"0": str(tmp_path / "in")}
    before = tree(path)
    with pytest.raises(InvalidRequestError, match=r"t-0 from offset 90 on.*is 95.*go back"):
        fork(path, tmp_path / "a", to=9, sources=sources)
    assert tree(path) == before
    assert not (tmp_path / "a").exists()
    fork(path, tmp_path / "a", to=10, sources=sources)
    restore_log(f"file://{tmp_path}/copies", tmp_path / "restored")
    assert fork(path, tmp_path / "c", to=9, sources={"0": str(tmp_path / "restored")}).batch == 9
    with pytest.raises(InvalidRequestError, match="no source '1'; its sources are 0"):
        fork(path, tmp_path / "b", to=10, sources={"1": "x"})


class CleaningUp(LocalFileSystem):
    """A disk on which a query replaces a state file while its checkpoint is copied."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def link(self, src: str, dst: str) -> None:
        if self._file.exists():
            self._file.rename(self._file.with_name(f"aside.{self._file.name}"))
        super().link(src, dst)


def test_a_batch_that_the_query_cleans_up_meanwhile(golden: Golden, tmp_path: Path) -> None:
    path = golden("hdfs")
    file = path / "state/0/1/9.delta"
    with pytest.raises(LogLockedError, match=r"during the copy .*: try again, or go back"):
        fork(path, tmp_path / "a", to=8, fs=CleaningUp(file))
    assert not (tmp_path / "a").exists()
    assert fork(path, tmp_path / "later", to=13).batch == 13
    file.with_name(f"aside.{file.name}").rename(file)  # as if it had been seen half replaced
    assert fork(path, tmp_path / "again", to=8).batch == 8
    assert verify(tmp_path / "again").ok


def test_refusals(golden: Golden, tmp_path: Path) -> None:
    path = golden("hdfs")
    new = tmp_path / "new"
    with pytest.raises(InvalidRequestError, match=r"commits/3 is missing; the earliest .* is 8"):
        fork(path, new, to=3)
    with pytest.raises(InvalidRequestError, match="is not committed"):
        fork(path, new, to=14)
    with pytest.raises(InvalidRequestError, match="log and new_log must be"):
        fork(path, new, to=9, log="x")
    with pytest.raises(InvalidRequestError, match="are nested"):
        fork(path, path / "new", to=9)
    with pytest.raises(InvalidRequestError, match="no log that sparklog wrote"):
        fork(path, new, to=9, log=tmp_path / "log", new_log=tmp_path / "log2")
    with pytest.raises(InvalidRequestError, match="does not exist"):
        fork(path, tmp_path / "no" / "where", to=9)
    new.mkdir()
    with pytest.raises(InvalidRequestError, match="exists already: choose a new directory"):
        fork(path, new, to=9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hdfs", "new"]


@pytest.mark.parametrize("is_stored", [False, True], ids=["log dir", "store"])
def test_the_log_is_forked_to_the_same_batch(
    golden: Golden, tmp_path: Path, is_stored: bool
) -> None:
    path = golden("stateless")
    query = history(path).query_id
    assert query is not None
    old, new = (f"file://{tmp_path}/{n}" if is_stored else f"{tmp_path}/{n}" for n in ("l", "l2"))
    with sparklog.open(old, mode="rw") as log:
        log.create_topic("t")
        for batch in range(6, 12):
            commit(log, f"{query}/one", batch)
            commit(log, f"{query}/two", batch)
    with pytest.raises(InvalidRequestError, match="log and new_log must be used together"):
        fork(path, tmp_path / "c2", to=9, log=old)
    assert fork(path, tmp_path / "c1", to=9).log is None
    done = fork(path, tmp_path / "c2", to=9, log=old, new_log=new)
    assert done.log == new
    with sparklog.open(new) as log:
        assert read(log) == [f"{b} {n}" for b in range(6, 10) for _ in "ab" for n in range(3)]
    with sparklog.open(old) as log:
        assert len(read(log)) == 6 * 6
    with sparklog.open(new, mode="rw") as log:  # what comes again is known, what is new isn't
        commit(log, f"{query}/one", 9)
        commit(log, f"{query}/one", 10)
        assert len(read(log)) == 4 * 6 + 3


def test_a_log_is_forked_in_its_kind_of_home(golden: Golden, tmp_path: Path) -> None:
    path, stored = golden("stateless"), f"file://{tmp_path}/stored"
    with sparklog.open(stored, mode="rw"), sparklog.open(tmp_path / "log", mode="rw"):
        pass
    with pytest.raises(InvalidRequestError, match="set new_log to a URL"):
        fork(path, tmp_path / "c2", to=9, log=stored, new_log=tmp_path / "l2")
    with pytest.raises(InvalidRequestError, match="directories beside them"):
        fork(path, tmp_path / "c2", to=9, log=tmp_path / "log", new_log="memory://l2")
    assert not (tmp_path / "c2").exists()


def test_what_a_crash_left_goes_with_the_next_fork(golden: Golden, tmp_path: Path) -> None:
    path = golden("stateless")
    left = tmp_path / ".new.fork-0123"
    (left / "offsets").mkdir(parents=True)
    (left / ".sparklog.building").touch()
    fork(path, tmp_path / "new", to=9, clock=ManualClock())
    assert not left.exists()
    assert not (tmp_path / "new" / ".sparklog.building").exists()


def backed_in_segments(path: Path, partition: str) -> CheckpointPartition:
    """Make records of a checkpoint's files, and rewrite some so that they fill closed segments."""
    import_(path)
    big = CheckpointPartition(LOCAL, str(path / "sparklog" / partition))
    for n in range(20):
        append(big, [Record("1.delta", bytes(1000), n)], segment_bytes=5000)
    return big


class NoSync(LocalFileSystem):
    """Syncing a file below `prefix` fails."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def open(self, path: str, *, create: bool = False, write: bool = False) -> LocalFile:
        file = super().open(path, create=create, write=write)
        if path.startswith(self._prefix):
            file.sync = self._fail  # type: ignore[method-assign]
        return file

    def _fail(self) -> None:
        raise StorageUnavailableError("can't sync: Input/output error")


def test_a_failed_sync_leaves_closed_segments_alone(golden: Golden, tmp_path: Path) -> None:
    """They have a second name by then: a copy to that one would be written over the original."""
    path = golden("hdfs")
    big = backed_in_segments(path, "state.0.default-0")
    before = tree(path)
    with pytest.raises(StorageUnavailableError, match="can't sync"):
        fork(path, tmp_path / "new", to=13, fs=NoSync(big.path(big.segments[1])))
    assert tree(path) == before
    assert not (tmp_path / "new").exists()


def test_what_a_running_query_writes_meanwhile_stays_out(golden: Golden, tmp_path: Path) -> None:
    """Its partitions are cleaned, so that they are read once more, and hold later batches then."""
    path = golden("hdfs")
    import_(path)
    fork(path, tmp_path / "quiet", to=11)
    met: set[str] = set()

    class Busy(LocalFileSystem):
        """The query writes to a partition, and cleans it, right before it is copied."""

        def mkdir(self, directory: str) -> None:
            super().mkdir(directory)
            source = str(path / "sparklog" / os.path.basename(directory))
            if os.path.isdir(source) and source not in met:
                met.add(source)
                for n in range(9):
                    key = "99.snapshot" if "state" in source else "99"
                    other = CheckpointPartition(LOCAL, source)
                    append(other, [Record(key, bytes(30_000), 1), Record("x", bytes(30_000), n)])
                assert clean(CheckpointPartition(LOCAL, source))

    fork(path, tmp_path / "new", to=11, fs=Busy())
    assert len(met) == 5
    assert view(tmp_path / "new") == view(tmp_path / "quiet")


def test_the_next_record_follows_the_last_that_stayed(golden: Golden, tmp_path: Path) -> None:
    """Also where all of the last segment goes: a file of a later offset must not take it."""
    path = golden("hdfs")
    import_(path)
    plans = CheckpointPartition(LOCAL, str(path / "sparklog/offsets-0"))
    for n in range(14, 20):
        append(plans, [Record(str(n), bytes(1000), n)], segment_bytes=1500)
    fork(path, tmp_path / "new", to=10)
    copy = CheckpointPartition(LOCAL, str(tmp_path / "new/sparklog/offsets-0"))
    end = max(entry.offset for entry in copy.entries.values()) + 1
    assert (copy.segments[-1].base, copy.next_offset) == (end, end)
    assert read_epochs(LOCAL, copy.directory)[-1] == (1, end)
