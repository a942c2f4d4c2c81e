"""Every class of fault, planted in a good log: found, repaired as far as can be, accepted."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.format.scan import scan
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.home import commits_of
from sparklog.logdir.offset_checkpoints import RECOVERY_POINT
from sparklog.logdir.recovery.redo import publish_all
from sparklog.service import Severity, verify
from sparklog.service.health import examine
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from tests.oracle import Oracle
from tests.paths import GOLDEN
from tests.service.faults import FAULTS, Fault
from tests.service.logs import SMALL, cut, fill, flip, kept, logs, make, patch, records


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "log"
    make(path)
    return path


@pytest.fixture
def log(template: Path, tmp_path: Path) -> Path:
    """A good log, closed, of one's own."""
    return Path(shutil.copytree(template, tmp_path / "log"))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A good log that was never closed: its process is gone."""
    with_session = make(tmp_path / "live", close=False)
    path = Path(shutil.copytree(tmp_path / "live", tmp_path / "log"))
    with_session.close()
    return path


# -- good logs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kafka-4.1", "sparklog-1"])
def test_golden_logs_have_nothing(name: str, tmp_path: Path) -> None:
    path = shutil.copytree(GOLDEN / name / "logdir", tmp_path / "log")
    before = kept(path)
    report = verify(path)
    assert report.findings == []
    assert report.ok
    assert report.partitions == (15 if name == "kafka-4.1" else 3)
    assert kept(path) == before, "it only reads"


def test_a_closed_log_has_nothing(log: Path) -> None:
    report = verify(log)
    assert report.findings == []
    assert (report.situation, report.partitions, report.segments) == ("closed", 3, 9)
    assert report.to_table().num_rows == 0
    assert report.plan == ""
    before = kept(log)
    assert verify(log, repair=True).done == []
    assert kept(log) == before


def test_an_open_log_has_nothing_while_it_is_written(tmp_path: Path) -> None:
    with make(tmp_path / "log", close=False) as log:
        for round_ in range(5):
            fill(log, "t", 0, 3, first=30 + 3 * round_)
            report = verify(tmp_path / "log")
            assert report.findings == []
            assert report.situation == "open"


def test_a_log_left_by_a_crash_has_only_leftovers(broken: Path) -> None:
    before = records(broken)
    report = verify(broken)
    assert report.situation == "left by a crash"
    assert {f.severity for f in report.findings} == {Severity.LEFTOVER}
    assert report.ok
    report = verify(broken, repair=True)
    assert report.ok
    assert all(f.repaired for f in report.findings)
    again = verify(broken)
    assert (again.findings, again.situation) == ([], "closed")
    assert records(broken) == before


def test_retired_files_are_one_finding_a_partition(log: Path) -> None:
    for name in ("00000000000000000001.log", "00000000000000000001.index", "x"):
        (log / "t-0" / f"{name}.deleted").touch()
    report = verify(log)
    (finding,) = report.findings
    assert report.ok
    assert (finding.file, finding.severity) == (str(log / "t-0"), Severity.LEFTOVER)
    assert finding.what.startswith("3 retired files; ")


def test_several_log_dirs(tmp_path: Path) -> None:
    path = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=4, config=SMALL)
        for p in range(4):
            fill(log, "t", p, 8)
    assert verify(path).findings == []
    flip(logs(tmp_path / "b" / "t-1")[0], 100)
    (finding,) = [f for f in verify(path).findings if f.severity is Severity.DAMAGE]
    assert (finding.topic, finding.partition) == ("t", 1)
    missing = verify(tmp_path / "a")
    assert not missing.ok
    assert "name all log dirs" in str(missing)


def test_a_compacted_log(tmp_path: Path) -> None:
    with sparklog.open(tmp_path, "rw") as log:
        log.create_topic("t", config={**SMALL, "cleanup.policy": "compact"})
        fill(log, "t", 0, 30)
        commits = commits_of(log)
        assert commits is not None
        report = clean_partition(commits, "t", 0)
        assert report.records_kept < report.records_read
        assert verify(tmp_path).ok
    found = verify(tmp_path)
    assert {f.severity for f in found.findings} <= {Severity.LEFTOVER, Severity.WARNING}
    with sparklog.open(tmp_path, "rw") as log:  # what compaction left stays legal
        log.alter_topic("t", config={"cleanup.policy": "delete"})
    assert verify(tmp_path).ok


def grown(path: Path, *, batches: int, policy: str = "delete", segment_bytes: int) -> None:
    """Two partitions with a segment for every two batches, then another segment.bytes."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2, {"internal.segment.bytes": 200, "cleanup.policy": policy})
        for partition in range(2):
            fill(log, "t", partition, batches)
        log.alter_topic("t", config={"internal.segment.bytes": segment_bytes})


def test_small_segments_are_warned_of(tmp_path: Path) -> None:
    """Once a topic, however many partitions it has; nothing is wrong."""
    grown(tmp_path, batches=12, segment_bytes=100_000)
    (finding,) = verify(tmp_path).findings
    assert finding.severity is Severity.WARNING
    assert "segment.bytes is 100000" in finding.what
    assert verify(tmp_path).ok
    shutil.rmtree(tmp_path)
    with sparklog.open(tmp_path, "rw") as log:  # larger batches
        log.create_topic("t", config={"internal.segment.bytes": 10_000})
        for _ in range(12):
            log.append("t", pa.table({"value": [b"x" * 6000]}))
    assert verify(tmp_path).findings == []


@pytest.mark.parametrize(
    "given",
    [
        {"batches": 3, "segment_bytes": 100_000},  # too few to tell
        {"batches": 12, "segment_bytes": 1000},  # small, but not that small
        {"batches": 12, "segment_bytes": 100_000, "policy": "compact,delete"},
    ],
    ids=["few", "large", "compacted"],
)
def test_segments_that_are_small_for_a_reason(given: dict[str, Any], tmp_path: Path) -> None:
    grown(tmp_path, **given)
    assert verify(tmp_path).findings == []


def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="does not exist"):
        verify(tmp_path / "nowhere")


# -- derived files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_is_found_and_repaired(fault: Fault, log: Path, oracle: Oracle) -> None:
    before = records(log)
    fault.plant(log / fault.file)
    planted = kept(log)
    report = verify(log)
    assert kept(log) == planted, "it only reads"
    assert len(report.findings) == 1, str(report)
    (hit,) = report.findings
    assert hit.file == str(log / fault.file)
    assert fault.what in hit.what
    assert hit.severity is fault.severity
    assert hit.repair is not None
    assert report.ok == (fault.severity is Severity.LEFTOVER)

    report = verify(log, repair=True)
    assert report.ok, str(report)
    assert report.refused is None
    assert report.done
    left = verify(log)
    assert left.ok, str(left)
    assert {f.what.partition(";")[0] for f in left.findings} <= {"set aside by a repair"}
    assert left.situation == "closed"
    _nothing_is_lost(planted, kept(log))
    assert records(log) == before
    for name, end in (("t-0", 60), ("t-1", 24), ("u-0", 10)):
        start = 14 if name == "t-0" else 0
        config = SMALL if name != "u-0" else {}
        opened = oracle.open(log / name, clean=True, log_start=start, config=config)
        assert (opened.start, opened.end) == (start, end)
        assert opened.untouched, (fault.name, opened.changed, opened.created, opened.removed)


def _nothing_is_lost(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """Every byte of a log is still there, in its place or set aside."""
    held = b"".join(after.values())
    for name, data in before.items():
        if name.endswith((".log", ".cleaned", ".swap", ".txt")):
            kept_ = after.get(name, b"")
            assert data == kept_ or (data.startswith(kept_) and data[len(kept_) :] in held), name


def test_many_faults_are_repaired_at_once(log: Path) -> None:
    before = records(log)
    files: set[str] = set()
    for fault in sorted(FAULTS, key=lambda f: (log / f.file).exists()):  # copies first
        if fault.file not in files and fault.name != "a snapshot of what came before":
            files.add(fault.file)
            fault.plant(log / fault.file)
    assert len(verify(log).findings) >= len(files) > 20
    report = verify(log, repair=True)
    assert report.ok, str(report)
    assert verify(log).ok
    assert records(log) == before


def test_a_log_dir_with_a_foreign_directory_is_warned_of(log: Path) -> None:
    (log / "_spark_metadata").mkdir()
    (finding,) = verify(log).findings
    assert finding.severity is Severity.WARNING
    assert "a broker refuses" in finding.what


def test_a_directory_with_a_partitions_name_is_warned_of(log: Path) -> None:
    (log / "checkpoint-1" / "offsets").mkdir(parents=True)
    (finding,) = verify(log).findings
    assert finding.severity is Severity.WARNING
    assert "not a partition, but its name makes brokers load it" in finding.what


def test_another_topics_id_is_no_repair(log: Path) -> None:
    shutil.copy(log / "u-0" / "partition.metadata", log / "t-0" / "partition.metadata")
    (finding,) = verify(log).findings
    assert (finding.severity, finding.repair) == (Severity.DIFFERENCE, None)
    assert "not the ledger's" in finding.what


# -- damage ----------------------------------------------------------------------------------------


def _batches(path: Path) -> list[tuple[int, int, int, int]]:
    """(position, size, first, end) of each batch."""
    table = scan(path.read_bytes(), path=str(path)).table
    return [
        (int(r["position"]), int(r["size"]), int(r["base_offset"]), int(r["last_offset"]) + 1)
        for r in table
    ]


def _zero_batch(path: Path, at: int) -> None:
    position, size, *_ = _batches(path)[at]
    patch(path, position, bytes(size))


HARM: dict[str, Callable[[Path, int], object]] = {
    "payload": lambda p, at: flip(p, _batches(p)[at][0] + 70),
    "crc": lambda p, at: flip(p, _batches(p)[at][0] + 18),
    "magic": lambda p, at: flip(p, _batches(p)[at][0] + 16, 4),
    "length": lambda p, at: flip(p, _batches(p)[at][0] + 11, 8),
    "long length": lambda p, at: flip(p, _batches(p)[at][0] + 9, 255),
    "negative length": lambda p, at: flip(p, _batches(p)[at][0] + 8, 128),
    "base offset": lambda p, at: flip(p, _batches(p)[at][0] + 7, 64),
    "far base offset": lambda p, at: flip(p, _batches(p)[at][0] + 2, 64),
    "negative base offset": lambda p, at: flip(p, _batches(p)[at][0], 128),
    "zeros": _zero_batch,
}


@pytest.mark.parametrize("at", [0, 2, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("segment", [2, -1], ids=["closed", "active"])
@pytest.mark.parametrize("harm", HARM)
def test_damage_is_reported_with_its_exact_range(
    harm: str, segment: int, at: int, log: Path
) -> None:
    path = logs(log / "t-0")[segment]
    position, _, first, end = _batches(path)[at]
    HARM[harm](path, at)
    planted = kept(log)
    for repair in (False, True):  # it stays where it is
        report = verify(log, repair=repair)
        (damage,) = [f for f in report.findings if f.severity is Severity.DAMAGE]
        assert (damage.file, damage.position) == (str(path), position)
        assert (damage.first, damage.end) == (first, end), str(damage)
        assert (damage.topic, damage.partition, damage.repair) == ("t", 0, None)
        assert not report.ok
    assert [f for f in report.findings if f.severity is not Severity.DAMAGE] == []
    assert kept(log) == planted


@pytest.mark.parametrize("segment", [1, 2, -1])
def test_a_missing_segment(segment: int, log: Path) -> None:
    path = logs(log / "t-0")[segment]
    first, end = _batches(path)[0][2], _batches(path)[-1][3]
    path.unlink()
    report = verify(log)
    (damage,) = [f for f in report.findings if f.severity is Severity.DAMAGE]
    assert (damage.first, damage.end) == (max(first, 14), end)


def test_missing_first_segments(log: Path) -> None:
    paths = logs(log / "t-0")[:2]
    end = _batches(paths[1])[-1][3]
    for path in paths:
        path.unlink()
    found = verify(log).findings
    (damage,) = [finding for finding in found if finding.severity is Severity.DAMAGE]
    assert (damage.file, damage.first, damage.end) == (str(log / "t-0"), 14, end)
    orphans = [f.file for f in found if f.what == "an index without a log"]
    assert orphans == sorted(
        str(path.with_suffix(suffix)) for path in paths for suffix in (".index", ".timeindex")
    )


@pytest.mark.parametrize("segment", [1, 2, -1])
def test_a_copy_of_a_segment_under_another_base_offset(segment: int, log: Path) -> None:
    """The segment itself stays whole: only the copy goes."""
    path = logs(log / "t-0")[segment]
    before, first = kept(log), _batches(path)[0][2]
    copy = path.with_name(f"{first + 1:020}.log")
    shutil.copy(path, copy)
    assert str(examine(str(log)).level) == "red"
    report = verify(log)
    assert [(f.severity, f.file) for f in report.findings] == [(Severity.DIFFERENCE, str(copy))]
    assert verify(log, repair=True).ok
    left = {name: data for name, data in kept(log).items() if "quarantine" not in name}
    assert left == before
    assert str(examine(str(log)).level) != "red"


def test_a_flipped_base_offset_makes_no_segment_a_copy(log: Path) -> None:
    path = logs(log / "t-0")[2]
    base = _batches(path)[0][2]
    with path.open("r+b") as file:
        file.write((base & (base - 1)).to_bytes(8, "big"))  # a set bit is cleared
    for name in (".index", ".timeindex"):
        path.with_suffix(name).unlink()
    report = verify(log, repair=True)
    assert not report.ok
    assert path.exists()


def test_a_segment_that_ends_too_early(log: Path) -> None:
    path = logs(log / "t-0")[2]
    position, _, first, _ = _batches(path)[3]
    cut(path, position + 30)
    (damage,) = [f for f in verify(log).findings if f.severity is Severity.DAMAGE]
    assert (damage.position, damage.first, damage.end) == (position, first, 36)


def test_two_damages_in_one_segment_are_two(log: Path) -> None:
    path = logs(log / "t-0")[2]
    batches = _batches(path)
    spans = [batches[at][2:] for at in (1, 4)]
    for at in (1, 4):
        flip(path, batches[at][0] + 70)
    found = [(f.first, f.end) for f in verify(log).findings if f.severity is Severity.DAMAGE]
    assert found == spans


def test_a_leader_epoch_that_can_not_be(log: Path) -> None:
    path = logs(log / "t-0")[2]
    position, _, first, end = _batches(path)[1]
    patch(path, position + 12, (9).to_bytes(4, "big"))
    (damage,) = verify(log).findings
    assert damage.severity is Severity.DAMAGE
    assert (damage.position, damage.first, damage.end) == (position, first, end)
    assert "leader epoch 9" in damage.what


def test_the_rest_is_repaired_beside_damage(log: Path) -> None:
    damaged = logs(log / "t-0")[2]
    HARM["payload"](damaged, 1)
    (log / "t-0" / "00000000000000000036.index").unlink()
    (log / "t-1" / "leader-epoch-checkpoint").unlink()
    report = verify(log, repair=True)
    assert [f.file for f in report.findings if not f.repaired] == [str(damaged)]
    assert sum(f.repaired for f in report.findings) == 2
    assert "done: difference, repaired: " in report.plan
    assert "no repair: damage" in report.plan


def test_a_missing_partition(log: Path) -> None:
    shutil.rmtree(log / "t-1")
    (finding,) = [f for f in verify(log).findings if f.severity is Severity.DAMAGE]
    assert (finding.first, finding.end) == (0, 24)


@pytest.mark.parametrize("where", [0.2, 0.6, 0.99])
def test_a_damaged_ledger(where: float, log: Path) -> None:
    path = logs(log / "__sparklog_commits-0")[0]
    flip(path, int(path.stat().st_size * where))
    report = verify(log)
    damage = [f for f in report.findings if f.severity is Severity.DAMAGE]
    assert damage
    assert all("__sparklog_commits-0" in f.file for f in report.findings), str(report)
    assert verify(log, repair=True).ok


def test_a_ledger_that_contradicts_itself(tmp_path: Path) -> None:
    """A record that says what the one before rules out."""
    with make(tmp_path / "log", close=False) as log:
        commits = commits_of(log)
        assert commits is not None
        record = AppendRecord(ends={TopicPartition("u", 0): OffsetRange(8, 12)})
        with commits.exclusive():
            commits.ledger.append(record, epoch=0, time_ms=5, sync=True)
            commits.manager.idle()
            report = verify(tmp_path / "log")
            state = commits.ledger.log.state
        assert "closed" not in report.situation
        assert state.end > 0
        with commits.hold_lock():
            publish_all(commits.manager)
        report = verify(tmp_path / "log")
        text = [f.what for f in report.findings if "contradicts" in f.what]
        assert any("u-0 gets offsets [8, 12) where it ended at 10" in t for t in text)
        assert any("its time 5 is before" in t for t in text)


# -- a broker's ------------------------------------------------------------------------------------


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "kafka-4.1" / "logdir", tmp_path / "broker"))


def test_a_brokers_log_is_repaired_and_stays_a_brokers(brokers: Path, oracle: Oracle) -> None:
    (brokers / "txn-0" / "00000000000000000040.index").unlink()
    flip(brokers / "txn-0" / "00000000000000000040.txnindex", 40)
    flip(brokers / "txn-0" / "00000000000000001679.snapshot", 40)
    (brokers / "trimmed-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n")
    (brokers / RECOVERY_POINT).write_text("1\n")
    files = {p.name for p in brokers.iterdir()}
    assert len(verify(brokers).findings) == 5
    report = verify(brokers, repair=True)
    assert report.ok, str(report)
    assert verify(brokers).situation == "a broker's, stopped"
    new = {p.name for p in brokers.iterdir()} - files
    assert all(name.startswith("sparklog-quarantine-") for name in new)
    aborted = "txn-0/00000000000000000040.txnindex"
    assert (brokers / aborted).read_bytes() == (
        GOLDEN / "kafka-4.1" / "logdir" / aborted
    ).read_bytes()
    epochs = brokers / "trimmed-0" / "leader-epoch-checkpoint"
    assert epochs.read_text() == "0\n1\n0 2222\n"
    opened = oracle.open(brokers / "txn-0", clean=True)
    assert (opened.end, opened.count) == (1679, 1679)


def test_damage_in_a_brokers_log(brokers: Path) -> None:
    path = brokers / "plain.none-1" / "00000000000000000000.log"
    *_, (position, _, first, end) = _batches(path)
    flip(path, position + 100)
    (damage,) = verify(brokers, repair=True).findings
    assert (damage.severity, damage.first, damage.end) == (Severity.DAMAGE, first, end)


def test_a_gap_is_legal_only_where_the_cleaner_was(brokers: Path) -> None:
    assert verify(brokers).ok
    (brokers / "cleaner-offset-checkpoint").unlink()
    found = [f for f in verify(brokers).findings if f.severity is Severity.DAMAGE]
    assert found
    assert {f.topic for f in found} == {"compacted"}


# -- the report ------------------------------------------------------------------------------------


def test_a_report_as_table_json_and_text(log: Path) -> None:
    HARM["payload"](logs(log / "t-0")[2], 1)
    (log / "t-1" / "partition.metadata").unlink()
    report = verify(log)
    rows = report.to_table().to_pylist()
    assert [row["severity"] for row in rows] == ["damage", "difference"]
    assert rows[0]["repair"] is None
    assert rows[0]["first"] == 26
    assert rows[1]["repair"].startswith("set it aside")
    assert json.loads(json.dumps(report.to_dict()))["counts"] == {
        "damage": 1, "difference": 1, "leftover": 0, "warning": 0,
    }  # fmt: skip
    assert len(report.plan.splitlines()) == 2
    assert str(report).startswith(f"{log} (closed): 3 partitions")


def test_one_is_not_said_as_many(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw"):
        pass
    assert "(closed): 0 partitions, 0 segments, 0 bytes: " in str(verify(tmp_path / "log"))
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
    report = verify(tmp_path / "log")
    report.partitions = report.segments = 1  # without the ledger's
    assert "(closed): 1 partition, 1 segment, " in str(report)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "copied"])
def test_damaged_files_of_readers_are_reported(tmp_path: Path, damage: str) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.commit_offsets("g", {"t": {0: 0}})
        (file,) = (tmp_path / "log").glob("sparklog.readers-*")
        raw = file.read_bytes()
        if damage == "copied":
            file = file.with_name(f"sparklog.readers-{0:032x}")
            file.write_bytes(raw)
        else:
            file.write_bytes(raw[:-9] if damage == "truncated" else raw[:-9] + b"?" + raw[-8:])
        (finding,) = verify(tmp_path / "log").findings
        assert (finding.severity, finding.file) == (Severity.DAMAGE, str(file))
        assert "of its reader rewrites it; delete the file to forget that reader" in finding.what
        if damage != "copied":
            log.commit_offsets("g", {"t": {0: 0}})  # as the message says
        else:
            file.unlink()
        assert verify(tmp_path / "log").ok
