"""Every class of fault, planted in a good log: found, repaired as far as can be, accepted."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.format.checkpoint import format_offsets
from sparklog.format.snapshot import format_snapshot, parse_snapshot
from sparklog.fs import LOCAL
from sparklog.log.checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT, read_offsets
from sparklog.service import Severity, verify
from tests.oracle import Oracle
from tests.service.logs import SMALL, cut, fill, flip, kept, logs, make, patch, records

GOLDEN = Path(__file__).parent.parent / "golden"


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
    assert (report.situation, report.partitions, report.segments) == ("closed", 3, 10)
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
    assert "give all log dirs" in str(missing)


def test_a_compacted_log(tmp_path: Path) -> None:
    from sparklog.log.cleaning.cleaner import clean_partition

    with sparklog.open(tmp_path, "rw") as log:
        log.create_topic("t", config={**SMALL, "cleanup.policy": "compact"})
        fill(log, "t", 0, 30)
        session = log._session
        assert session is not None
        report = clean_partition(session, "t", 0)
        assert report.records_kept < report.records_read
        assert verify(tmp_path).ok
    found = verify(tmp_path)
    assert {f.severity for f in found.findings} <= {Severity.LEFTOVER, Severity.WARNING}
    with sparklog.open(tmp_path, "rw") as log:  # what compaction left stays legal
        log.alter_topic("t", config={"cleanup.policy": "delete"})
    assert verify(tmp_path).ok


def test_small_segments_are_warned_of(tmp_path: Path) -> None:
    with sparklog.open(tmp_path, "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": 200})
        fill(log, "t", 0, 12)
        log.alter_topic("t", config={"internal.segment.bytes": 100_000})
    (finding,) = verify(tmp_path).findings
    assert finding.severity is Severity.WARNING
    assert "segment.bytes is 100000" in finding.what
    assert verify(tmp_path).ok


def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="does not exist"):
        verify(tmp_path / "nowhere")


# -- derived files ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """`plant` breaks a log; a finding of `file` must say `what`."""

    name: str
    file: str
    what: str
    plant: Callable[[Path], object]
    severity: Severity = Severity.DIFFERENCE


def _copy(path: Path, source: str, target: str) -> None:
    shutil.copy(path / source, path / target)


def _rewrite_snapshot(path: Path) -> None:
    """Another sequence number, under a CRC that fits."""
    file = sorted((path / "t-1").glob("*.snapshot"))[-1]
    entries = parse_snapshot(file.read_bytes(), str(file))
    import dataclasses

    changed = [dataclasses.replace(e, last_sequence=e.last_sequence + 1) for e in entries]
    file.write_bytes(format_snapshot(changed))


def _offsets(path: Path, name: str, change: dict[tuple[str, int], int]) -> None:
    known = read_offsets(LOCAL, str(path), name)
    (path / name).write_bytes(format_offsets({**known, **change}))


S = "00000000000000000024"
DERIVED = [
    Fault("index missing", f"{S}.index", "missing", lambda p: (p / "t-0" / f"{S}.index").unlink()),
    Fault("index flipped", f"{S}.index", "begins at byte", lambda p: flip(p / "t-0" / f"{S}.index", 7, 64)),
    Fault("index offset flipped", f"{S}.index", "begins at byte", lambda p: flip(p / "t-0" / f"{S}.index", 3, 2)),
    Fault("index unsorted", f"{S}.index", "goes back", lambda p: patch(p / "t-0" / f"{S}.index", 0, b"\x00\x00\x7f\x00")),
    Fault("index torn", f"{S}.index", "no multiple", lambda p: cut(p / "t-0" / f"{S}.index", -3)),
    Fault("index short", f"{S}.index", "nothing is indexed", lambda p: cut(p / "t-0" / f"{S}.index", 8)),
    Fault("index past the log", f"{S}.index", "points past", lambda p: (p / "t-0" / f"{S}.index").open("ab").write(b"\0\0\0\x7f\0\x01\0\0")),
    Fault("index zero tail", f"{S}.index", "goes back", lambda p: (p / "t-0" / f"{S}.index").open("ab").write(bytes(64))),
    Fault("active index zero tail", "48.index", "goes back", lambda p: (p / "t-0" / "00000000000000000048.index").open("ab").write(bytes(64))),
    Fault("time index missing", f"{S}.timeindex", "missing", lambda p: (p / "t-0" / f"{S}.timeindex").unlink()),
    Fault("time index empty", f"{S}.timeindex", "last entry has time -1", lambda p: cut(p / "t-0" / f"{S}.timeindex", 0)),
    Fault("time flipped", f"{S}.timeindex", "first to reach", lambda p: flip(p / "t-0" / f"{S}.timeindex", 7)),
    Fault("time's offset flipped", f"{S}.timeindex", "first to reach", lambda p: flip(p / "t-0" / f"{S}.timeindex", 11)),
    Fault("time index without its last", f"{S}.timeindex", "the segment's largest", lambda p: cut(p / "t-0" / f"{S}.timeindex", -12)),
    Fault("snapshot flipped", f"{S}.snapshot", "crc", lambda p: flip(p / "t-0" / f"{S}.snapshot", 3)),
    Fault("snapshot missing", f"{S}.snapshot", "missing", lambda p: (p / "t-0" / f"{S}.snapshot").unlink()),
    Fault("snapshot of producers flipped", "21.snapshot", "crc", lambda p: flip(p / "t-1" / "00000000000000000021.snapshot", 30)),
    Fault("newest snapshot wrong", "24.snapshot", "has last_sequence", _rewrite_snapshot),
    Fault("newest snapshot missing", "24.snapshot", "missing", lambda p: (p / "t-1" / "00000000000000000024.snapshot").unlink()),
    Fault("aborts of nobody", ".txnindex", "others", lambda p: (p / "t-1" / "00000000000000000011.txnindex").write_bytes((0).to_bytes(2, "big") + b"".join(n.to_bytes(8, "big") for n in (7, 11, 13, 14)))),
    Fault("epochs unreadable", "leader-epoch-checkpoint", "not a number", lambda p: patch(p / "t-0" / "leader-epoch-checkpoint", 2, b"x")),
    Fault("epochs missing", "leader-epoch-checkpoint", "the file says None", lambda p: (p / "t-0" / "leader-epoch-checkpoint").unlink()),
    Fault("epochs start late", "leader-epoch-checkpoint", "the file says None", lambda p: (p / "t-1" / "leader-epoch-checkpoint").write_text("0\n1\n0 9\n")),
    Fault("another epoch", "leader-epoch-checkpoint", "the file says 5", lambda p: (p / "t-1" / "leader-epoch-checkpoint").write_text("0\n1\n5 0\n")),
    Fault("an epoch too many", "leader-epoch-checkpoint", "no batch has epoch 1", lambda p: (p / "t-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 8\n")),
    Fault("epoch past the end", "leader-epoch-checkpoint", "past the end", lambda p: (p / "t-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 800\n")),
    Fault("metadata missing", "partition.metadata", "missing", lambda p: (p / "t-0" / "partition.metadata").unlink()),
    Fault("metadata unreadable", "partition.metadata", "version", lambda p: flip(p / "t-0" / "partition.metadata", 0)),
    Fault("watermarks missing", "sparklog.watermarks", "missing", lambda p: (p / "sparklog.watermarks").unlink()),
    Fault("watermarks flipped", "sparklog.watermarks", "damaged", lambda p: flip(p / "sparklog.watermarks", -5)),
    Fault("topics missing", "sparklog.topics", "missing", lambda p: (p / "sparklog.topics").unlink()),
    Fault("topics flipped", "sparklog.topics", "crc32c", lambda p: flip(p / "sparklog.topics", -30)),
    Fault("high watermarks unreadable", HIGH_WATERMARK, "not a number", lambda p: patch(p / HIGH_WATERMARK, 0, b"x")),
    Fault("high watermark low", HIGH_WATERMARK, "the ledger says 60", lambda p: _offsets(p, HIGH_WATERMARK, {("t", 0): 59})),
    Fault("high watermark high", HIGH_WATERMARK, "the log ends at 60", lambda p: _offsets(p, HIGH_WATERMARK, {("t", 0): 61})),
    Fault("high watermarks missing", HIGH_WATERMARK, "missing", lambda p: (p / HIGH_WATERMARK).unlink()),
    Fault("recovery points missing", RECOVERY_POINT, "missing", lambda p: (p / RECOVERY_POINT).unlink()),
    Fault("recovery point high", RECOVERY_POINT, "the log ends at 60", lambda p: _offsets(p, RECOVERY_POINT, {("t", 0): 1000})),
    Fault("recovery points torn", RECOVERY_POINT, "should hold", lambda p: cut(p / RECOVERY_POINT, -12)),
    Fault("log start low", LOG_START, "the ledger says 14", lambda p: _offsets(p, LOG_START, {("t", 0): 13})),
    Fault("log start high", LOG_START, "the ledger says 14", lambda p: _offsets(p, LOG_START, {("t", 0): 15})),
    Fault("log start of another", LOG_START, "the ledger says 0", lambda p: _offsets(p, LOG_START, {("u", 0): 2})),
    Fault("log starts missing", LOG_START, "missing", lambda p: (p / LOG_START).unlink()),
    Fault("cleaner past the end", "cleaner-offset-checkpoint", "the log ends at 10", lambda p: _offsets(p, "cleaner-offset-checkpoint", {("u", 0): 99})),
    Fault("a name without an offset", "old.log", "no offset in its name", lambda p: _copy(p / "t-0", f"{S}.log", "old.log")),
    Fault("a foreign file", "notes.txt", "no file of a log", lambda p: (p / "t-0" / "notes.txt").write_text("mine"), Severity.LEFTOVER),
    Fault("a half-written file", ".tmp", "no file of a log", lambda p: (p / "t-0" / "leader-epoch-checkpoint.tmp").write_text("0"), Severity.LEFTOVER),
    Fault("a half-written file of the log", ".tmp", "was cut", lambda p: (p / "sparklog.topics.tmp").write_text("{"), Severity.LEFTOVER),
    Fault("an index without a log", "36.index", "without a log", lambda p: _copy(p / "u-0", "../t-0/00000000000000000036.index", "00000000000000000036.index"), Severity.LEFTOVER),
    Fault("a snapshot of no segment", "7.snapshot", "of no segment", lambda p: _copy(p / "u-0", "00000000000000000010.snapshot", "00000000000000000007.snapshot"), Severity.LEFTOVER),
    Fault("a cleaner's file", ".cleaned", "never finished", lambda p: _copy(p / "t-0", f"{S}.log", f"{S}.log.cleaned"), Severity.LEFTOVER),
    Fault("a swap", ".swap", "put it in a segment's place", lambda p: _copy(p / "t-0", f"{S}.log", f"{S}.log.swap")),
    Fault("a tail of zeros", "48.log", "past the end", lambda p: (p / "t-0" / "00000000000000000048.log").open("ab").write(bytes(700))),
    Fault("a tail of records", "48.log", "past the end", lambda p: (p / "t-0" / "00000000000000000048.log").open("ab").write((p / "t-0" / f"{S}.log").read_bytes())),
    Fault("a segment past the end", "90.log", "past the end", lambda p: _copy(p / "t-0", f"{S}.log", "00000000000000000090.log")),
    Fault("damage below the log start", "00000000000000000000.log", "below the log start", lambda p: flip(p / "t-0" / "00000000000000000000.log", 80)),
]  # fmt: skip


@pytest.mark.parametrize("fault", DERIVED, ids=lambda f: f.name)
def test_a_fault_is_found_and_repaired(fault: Fault, log: Path, oracle: Oracle) -> None:
    before = records(log)
    fault.plant(log)
    planted = kept(log)
    report = verify(log)
    assert kept(log) == planted, "it only reads"
    hits = [f for f in report.findings if f.file.endswith(fault.file) and fault.what in f.what]
    assert len(hits) == 1, str(report)
    assert hits[0].severity is fault.severity
    assert hits[0].repair is not None
    assert len(report.findings) == 1, str(report)
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


def test_two_repairs_at_once_are_one(log: Path) -> None:
    for fault in DERIVED[:9]:
        fault.plant(log) if fault.name in ("time flipped", "index missing") else None
    (log / "sparklog.watermarks").unlink()
    assert verify(log, repair=True).ok
    assert verify(log).findings == []


def test_a_log_dir_with_a_foreign_directory_is_warned_of(log: Path) -> None:
    (log / "_spark_metadata").mkdir()
    (finding,) = verify(log).findings
    assert finding.severity is Severity.WARNING
    assert "a broker refuses" in finding.what


def test_another_topics_id_is_no_repair(log: Path) -> None:
    shutil.copy(log / "u-0" / "partition.metadata", log / "t-0" / "partition.metadata")
    (finding,) = verify(log).findings
    assert (finding.severity, finding.repair) == (Severity.DIFFERENCE, None)
    assert "not the ledger's" in finding.what


# -- damage ----------------------------------------------------------------------------------------


def _batches(path: Path) -> list[tuple[int, int, int, int]]:
    """(position, size, first, end) of each batch."""
    from sparklog.format.scan import scan

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
    assert verify(log, repair=True).findings == report.findings


def test_a_ledger_that_contradicts_itself(tmp_path: Path) -> None:
    """A record that says what the one before rules out."""
    with make(tmp_path / "log", close=False) as log:
        session = log._session
        assert session is not None
        record = {"kind": "append", "ends": {"u": {"0": [8, 12]}}, "time": 0}
        with session.locked():
            session.ledger.append(record, epoch=0, time_ms=5, sync=True)
            session.idle()
            report = verify(tmp_path / "log")
            state = session.ledger.log.state
        assert "closed" not in report.situation
        assert state.end > 0
        from sparklog.log.effects import publish_all

        with session.exclusive():
            publish_all(session)
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
