"""The advice to remove, delete or move away something: nothing is lost by it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint import history, reset
from sparklog.cli.app import run
from sparklog.common import TopicPartition
from sparklog.diskless.import_objects import BucketTarget, LogImport
from sparklog.diskless.names import IMPORT
from sparklog.errors import DataCorruptionError, InvalidRequestError, PartitionOfflineError
from sparklog.log.log import home_of
from sparklog.service import erase, verify
from sparklog.storage.groups import Reader
from sparklog.storage.staging import Framing
from sparklog.tiered.target import open_store
from sparklog.tools.handover.log_handover import hand_over
from sparklog.tools.moving.to_log_dir import move_to_log_dir
from sparklog.tools.moving.to_store import move_to_store
from tests.checkpoint.conftest import Golden, golden, impatient, unpacked
from tests.checkpoint.test_reset import is_reset, write_log
from tests.damage import killed_log_dir, log_dir
from tests.damage.actions import without_waiting
from tests.damage.checks import rows_of
from tests.damage.model import Home
from tests.depth import RESTORED_EVERY
from tests.paths import GOLDEN

__all__ = ["golden", "impatient", "unpacked"]

ROWS = pa.table({"key": [b"k"] * 5, "value": [b"v"] * 5})


@pytest.fixture(params=["log dir", "store"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A log with topic t; group g has committed offsets 2 and 3."""
    made = f"{tmp_path}/log" if request.param == "log dir" else f"file://{tmp_path}/log"
    with sparklog.open(made, "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
        for offset in (2, 3):
            log.commit_offsets("g", {"t": {0: offset}})
    return made


def positions(path: str) -> list[tuple[str, int]]:
    with sparklog.open(path) as log:
        table = log.readers().select(["group", "offset"]).to_pylist()
    return [(row["group"], row["offset"]) for row in table]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def test_a_damaged_position_in_a_log_dir_is_forgotten_with_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.commit_offsets("g", {"t": {0: 0}})
        log.commit_offsets("h", {"t": {0: 0}})
        (file,) = [p for p in Path(path).glob("sparklog.readers-*") if b'"g"' in p.read_bytes()]
        cut(file)
        with pytest.raises(DataCorruptionError, match="delete the file to forget that reader"):
            log.read("t", group="g")
        file.unlink()
        assert positions(path) == [("h", 0)]
        log.commit_offsets("g", {"t": {0: 0}})
    assert verify(path).ok


def test_a_damaged_position_in_a_store_is_forgotten_and_not_set_back(tmp_path: Path) -> None:
    """Its newest object alone must not be deleted: the group would continue at the one before."""
    path = f"file://{tmp_path}/log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
        for offset in (2, 3):
            log.commit_offsets("g", {"t": {0: offset}})
        cut(max((tmp_path / "log/readers/g").iterdir()))
        said = str(verify(path))
        assert "Log.delete_reader forgets the group" in said
        assert "delete it" not in said
        assert log.delete_reader("g")
        assert positions(path) == []
    assert verify(path).ok


@pytest.mark.parametrize("cure", ["commit", "forget"])
def test_a_damaged_position_is_moved_once_it_is_written_or_forgotten(
    path: str, tmp_path: Path, cure: str
) -> None:
    is_store = path.startswith("file://")
    target = str(tmp_path / "to") if is_store else f"file://{tmp_path}/to"
    move = move_to_log_dir if is_store else move_to_store
    for file in Path(path.removeprefix("file://")).glob(
        "readers/g/*" if is_store else "sparklog.readers-*"
    ):
        cut(file)
    with pytest.raises(DataCorruptionError, match="let its reader commit again, or") as refusal:
        move(path, target)
    if cure == "commit":
        with sparklog.open(path, "rw") as log:
            log.commit_offsets("g", {"t": {0: 4}})
    elif is_store:
        assert "Log.delete_reader" in str(refusal.value)
        with sparklog.open(path, "rw") as log:
            log.delete_reader("g")
    else:
        assert "delete the file" in str(refusal.value)
        os.unlink(refusal.value.path or "")
    move(path, target)
    assert positions(target) == ([("g", 4)] if cure == "commit" else [])
    with sparklog.open(target) as log:
        assert log.read("t").read_all().num_rows == 5


def test_a_damaged_note_of_a_reset_is_removed_and_the_reset_done_again(
    golden: Golden, tmp_path: Path
) -> None:
    checkpoint, log = golden("stateless"), str(tmp_path / "log")
    query = history(checkpoint).query_id or ""
    write_log(log, query)
    reset(checkpoint, to=9)  # the log hasn't followed
    note = checkpoint / "sparklog.reset"
    note.write_text('{"log": 1}')
    with pytest.raises(DataCorruptionError, match="remove the file and reset the checkpoint"):
        reset(checkpoint, to=9, log=log)
    assert not is_reset(log, query)
    note.unlink()
    newest = history(checkpoint).batches[-1].batch
    reset(checkpoint, to=newest, log=log)
    assert is_reset(log, query)


def test_a_note_of_a_reset_whose_log_is_gone_for_good(golden: Golden, tmp_path: Path) -> None:
    checkpoint = golden("stateless")
    note = checkpoint / "sparklog.reset"
    fields = {"log": str(tmp_path / "log"), "writer": "q", "batch": 9, "time": 1}
    note.write_text(json.dumps(fields))
    with pytest.raises(InvalidRequestError, match="if it is lost permanently, remove this file"):
        reset(checkpoint, to=9)
    note.unlink()
    assert reset(checkpoint, to=9).batch == 9


@pytest.mark.parametrize("mark", [b"damaged", None], ids=["damaged", "of another origin"])
def test_nothing_is_removed_where_an_import_has_made_a_log(
    tmp_path: Path, mark: bytes | None
) -> None:
    """The mark of an import may outlive it, and the log has commits of its own by then."""
    url = f"file://{tmp_path}/log"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
    store = open_store(url)
    other = LogImport(BucketTarget(store=open_store(f"file://{tmp_path}/other")), "a")
    other.claim()
    store.put(IMPORT, mark or open_store(f"file://{tmp_path}/other").get(IMPORT))
    with pytest.raises((DataCorruptionError, InvalidRequestError)) as refusal:
        LogImport(BucketTarget(store=store), "b").claim()
    assert "delete all" not in str(refusal.value)
    if mark is not None:
        assert f"delete the object {IMPORT}, and choose another prefix" in str(refusal.value)
        store.delete([IMPORT])
    assert verify(url).ok
    with sparklog.open(url, "rw") as log:
        log.append("t", ROWS)
        assert log.read("t").read_all().num_rows == 10


def test_what_an_import_left_is_removed_where_it_made_no_log(tmp_path: Path) -> None:
    source, url = str(tmp_path / "log"), f"file://{tmp_path}/to"
    with sparklog.open(source, "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
    store = open_store(url)
    store.put(IMPORT, b"damaged")
    store.put("t-0/left", b"")
    with pytest.raises(DataCorruptionError, match="delete all objects there, and call again"):
        move_to_store(source, url)
    store.delete([one.name for one in store.list()])
    move_to_store(source, url)
    with sparklog.open(url) as moved:
        assert moved.read("t").read_all().num_rows == 5


# --- directories ---------------------------------------------------------------------------------


def test_a_directory_in_the_way_is_moved_away(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        (tmp_path / "log/t-0").mkdir()
        with pytest.raises(InvalidRequestError, match="move the directory away"):
            log.create_topic("t")
        (tmp_path / "log/t-0").rename(tmp_path / "away")
        log.create_topic("t")
        log.append("t", ROWS)
        log.delete_topic("t")
        (tmp_path / "log/t-0").mkdir()
        with pytest.raises(InvalidRequestError, match="move the directory away"):
            log.undelete_topic("t")
        (tmp_path / "log/t-0").rename(tmp_path / "away as well")
        log.undelete_topic("t")
        assert log.read("t").read_all().num_rows == 5


@pytest.mark.parametrize("kept", [0, 1])
def test_one_of_two_directories_of_a_partition_is_moved_away(tmp_path: Path, kept: int) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    path = ",".join(map(str, dirs))
    sparklog.open(path, "rw").close()
    for at in dirs:  # of a broker, or of another log, that was copied in twice
        with sparklog.open(tmp_path / "source", "rw") as log:
            if "t" not in log.topics():
                log.create_topic("t")
                log.append("t", ROWS)
        _copy(tmp_path / "source/t-0", at / "t-0")
    with pytest.raises(
        InvalidRequestError, match=r"is in two log dirs, .*: move the wrong directory away"
    ):
        sparklog.open(path, "rw")
    (dirs[1 - kept] / "t-0").rename(tmp_path / "away")
    with sparklog.open(path, "rw") as log:
        assert log.read("t").read_all().num_rows == 5


@pytest.mark.parametrize("cure", ["move it", "write"])
def test_a_copy_of_a_partition_is_moved_out_of_the_log_dir(tmp_path: Path, cure: str) -> None:
    """A writer does not take it over, but sets it aside, so the log is what it was without it."""
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        log.append("t", ROWS, 0)
    _copy(tmp_path / "log/t-0", tmp_path / "log/t-2")
    advice = "the log has no t-2, .*: move the directory out of the log dir"
    assert re.search(advice, str(verify(path)))
    with sparklog.open(path) as log, pytest.raises(PartitionOfflineError, match=advice):
        log.read("t").read_all()
    if cure == "move it":
        (tmp_path / "log/t-2").rename(tmp_path / "away")
    with sparklog.open(path, "rw") as log:
        assert log.topics()["t"].partitions == 2
        log.append("t", ROWS, 1)
        assert log.read("t").read_all().num_rows == 10
    assert verify(path).ok


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 1}'])
def test_a_damaged_topics_file_is_written_again_by_an_open_for_writing(
    tmp_path: Path, damage: bytes
) -> None:
    """Also if the log was not closed: the writer that opens it next does not fail first."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
        (path / "sparklog.topics").write_bytes(damage)
        with pytest.raises(DataCorruptionError, match="open the log once for writing"):
            sparklog.open(path)
        with sparklog.open(path, "rw") as other:
            other.append("t", ROWS)
        with sparklog.open(path) as reader:
            assert reader.read("t").read_all().num_rows == 10
    assert verify(path).ok


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "unclean stop"])
def test_leader_epochs_of_a_brokers_directory_are_repaired_and_not_removed(
    tmp_path: Path, clean: bool
) -> None:
    """Without the file, what was checked before a clean stop would lose its epochs."""
    path = tmp_path / "log"
    shutil.copytree(GOLDEN / "kafka-4.1" / "logdir" / "plain.none-0", path / "t-0")
    if clean:
        (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    epochs = path / "t-0/leader-epoch-checkpoint"
    before = epochs.read_text()
    epochs.write_text("x")
    with pytest.raises(DataCorruptionError, match="--repair` rebuilds this file") as refusal:
        sparklog.open(path, "rw")
    assert "remove" not in str(refusal.value)
    assert run(["verify", str(path), "--repair"]) == 0
    assert epochs.read_text() == before
    with sparklog.open(path, "rw") as log:
        assert not log.offline()
    assert verify(path).findings == []


@pytest.mark.parametrize("cure", ["mount", "give up"])
def test_a_log_dir_that_is_missing_is_mounted_or_given_up_before_a_handover(
    tmp_path: Path, cure: str
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    path = f"{one},{two}"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        for partition in (0, 1):
            log.append("t", ROWS, partition)
    two.rename(tmp_path / "away")
    for check in (True, False):
        with pytest.raises((InvalidRequestError, PartitionOfflineError), match="mount"):
            hand_over(path, check=check)
    if cure == "mount":
        if two.exists():
            two.rmdir()
        (tmp_path / "away").rename(two)
    else:
        assert run(["verify", path, "--give-up"]) == 0
        two.mkdir(exist_ok=True)
    hand_over(path, check=True)
    hand_over(path)
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (0, 5), 1: (0 if cure == "mount" else 5, 5)}


# --- what a repair has set aside -----------------------------------------------------------------

HOMES = {"log_dir": log_dir, "killed_log_dir": killed_log_dir}
QUARANTINE = "sparklog-quarantine-"


@pytest.mark.parametrize("name", HOMES)
def test_what_a_repair_has_set_aside_is_not_needed(name: str) -> None:
    """Reads and `verify` are the same without it, whatever was damaged."""
    home: Home = HOMES[name].home()
    wrong, count = [], 0
    for at, (kind, damage, files) in enumerate(rows_of(home)):
        if at % RESTORED_EVERY:
            continue
        with without_waiting(), home.lay_out(files) as place:
            verify(place.path, repair=True)
            aside = {name for name in place.files() if QUARANTINE in name}
            if not aside:
                continue
            before, count = home.actions.read(place.path), count + 1
            found = home.actions.verify(place.path).word
            assert "delete it once nobody misses it" in str(verify(place.path))
            kept = {n: data for n, data in place.files().items() if n not in aside}
        with without_waiting(), home.lay_out(kept) as place:
            if home.actions.read(place.path) != before:
                wrong.append(f"{kind.name} | {damage}: a read differs")
            if home.actions.verify(place.path).word != found:
                wrong.append(f"{kind.name} | {damage}: verify differs")
    assert not wrong, "\n".join(wrong)
    assert count > 2


# --- what an erasure does not look at -----------------------------------------------------------


def test_leftovers_that_an_erasure_reports_are_removed_and_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]}))
        log.append("t", ROWS)
    aside = path / "sparklog-quarantine-20260101T000000Z-t-0-x.log"
    aside.write_bytes(b"?")
    stray = path / f"t-0.{'0' * 32}-stray"
    stray.mkdir()
    (segment,) = (path / "t-0").glob("*.log")
    backup = tmp_path / "backup"
    os.link(segment, backup)
    report = erase(path, "t", [b"a"])
    said = "\n".join(report.pending)
    assert "in quarantine and was not checked: remove it" in said
    assert "wait until the service deletes it, or remove it" in said
    assert "still refer to the old file: erase the records there, too" in said
    assert not report.complete
    assert b"a" in backup.read_bytes()
    for left in (aside, backup):
        left.unlink()
    stray.rmdir()
    again = erase(path, "t", [b"a"])
    assert again.complete, again.pending
    with sparklog.open(path) as log:
        assert log.read("t").read_all().num_rows == 6
    assert verify(path).ok


def test_a_deleted_topic_that_holds_an_erasure_up_is_given_up(tmp_path: Path) -> None:
    """One entry of the ledger holds rows of both topics."""
    url = f"file://{tmp_path}/log"
    with sparklog.open(url, "rw") as log:
        for topic in ("t", "u"):
            log.create_topic(topic)
        stager = log.stager(Framing())
        for topic in ("t", "u"):
            rows = pa.table({"key": [b"a"], "value": [b"1"]}).to_batches()[0]
            stager.add(log.topic(topic), rows)
        log.commit(stager.finish())
        log.append("t", ROWS)
        log.delete_topic("u")
    report = erase(url, "t", [b"a"])
    (said,) = [line for line in report.pending if "can be restored" in line]
    assert "`sparklog topics delete PATH --topic" in said
    assert run(["topics", "delete", url, "--topic", "u", "--now"]) == 0
    again = erase(url, "t", [b"a"])
    assert again.complete, again.pending
    with sparklog.open(url) as log:
        assert log.read("t").read_all().num_rows == 5


def test_a_group_of_a_query_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
        query = Reader("g", "query", app="app")
        home_of(log).groups.commit_query(query, {TopicPartition("t", 0): 2}, now_ms=1)
        with pytest.raises(InvalidRequestError, match="is a streaming query"):
            log.reset_reader("g", "earliest", "t")
        assert log.delete_reader("g")
        log.commit_offsets("g", {"t": {0: 1}})
        assert positions(log.path) == [("g", 1)]
