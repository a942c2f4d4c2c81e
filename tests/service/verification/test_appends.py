"""Segments with batches of another partition are found, and a repair doesn't make them fit."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.home import commits_of
from sparklog.service import Finding, erase, verify
from sparklog.service.health import examine
from sparklog.storage.committed_appends import Appends
from sparklog.storage.ledger_records import decode, encode
from tests import paths
from tests.logdir.test_opening import abandon
from tests.service.logs import T0, kept

CONFIG = {"internal.segment.bytes": 600, "index.interval.bytes": 100, "retention.ms": -1}
SUFFIXES = (".log", ".index", ".timeindex")


def make(
    path: Path, *, crash: bool = False, size: Callable[[int, int], int] = lambda n, p: 1 + n % 3
) -> None:
    """Topic t of two partitions whose appends have the same offsets, and batches the same sizes."""
    log = sparklog.open(path, "rw", clock=ManualClock(T0))
    log.create_topic("t", partitions=2, config=CONFIG)
    for n in range(24):
        for p in range(2):
            values = [f"{p}-{n}-{row}" for row in range(size(n, p))]
            times = pa.array([T0 + n * 10 + p] * len(values), pa.timestamp("ms"))
            log.append("t", pa.table({"value": values, "timestamp": times}), partition=p)
    if crash:
        abandon(log)
    log.close()


def bases(path: Path, partition: int = 0) -> list[int]:
    return sorted(int(file.stem) for file in (path / f"t-{partition}").glob("*.log"))


def swap(path: Path, base: int, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    for suffix in suffixes:
        first, second = (path / f"t-{p}" / f"{base:020d}{suffix}" for p in (0, 1))
        aside = path.parent / "aside"
        first.rename(aside)
        second.rename(first)
        aside.rename(second)


def damage(path: Path) -> list[Finding]:
    return [finding for finding in verify(path).findings if finding.severity == "damage"]


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("suffixes", [SUFFIXES, (".log",)], ids=["segment", "log"])
@pytest.mark.parametrize("number", [0, 2, -1], ids=["first", "closed", "active"])
def test_swapped_segments(
    tmp_path: Path, number: int, suffixes: tuple[str, ...], crash: bool
) -> None:
    path = tmp_path / "log"
    make(path, crash=crash)
    known = bases(path)
    assert known == bases(path, 1)
    base, end = known[number], [*known, 48][known.index(known[number]) + 1]
    swap(path, base, suffixes)
    found = damage(path)
    assert [finding.partition for finding in found] == [0, 1]
    for finding in found:
        assert finding.file == str(path / f"t-{finding.partition}" / f"{base:020d}.log")
        assert (finding.first, finding.end, finding.fix) == (base, end, None)
        assert f"they belong to t-{1 - finding.partition}" in finding.what
    before = kept(path / "t-0")
    assert not verify(path, repair=True).ok
    if not crash:  # else recovery has rebuilt the indexes, and verify still tells
        assert kept(path / "t-0") == before
    assert [finding.partition for finding in damage(path)] == [0, 1]
    swap(path, base, (".log",) if crash else suffixes)  # what the message advises
    assert verify(path, repair=True).ok
    assert verify(path).ok
    with sparklog.open(path) as log:
        for p in range(2):
            rows = log.read("t", [p], columns=["value"]).read_all().column(0).to_pylist()
            assert len(rows) == 48 and all(row.startswith(b"%d-" % p) for row in rows)


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_a_writer_does_not_go_on_in_another_partitions_segment(tmp_path: Path, crash: bool) -> None:
    """Not at an open, and not where the files were swapped under it."""
    path = tmp_path / "log"
    make(path, crash=crash)
    rows = pa.table({"value": ["more"]})
    active = bases(path)[-1]
    swap(path, active)
    with sparklog.open(path, "rw") as log:
        for p in range(2):
            with pytest.raises(sparklog.DataCorruptionError, match="another partition") as raised:
                log.append("t", rows, partition=p)
            assert raised.value.path == str(path / f"t-{p}" / f"{active:020d}.log")
        assert sorted(log.offline()) == [("t", 0), ("t", 1)]
    assert examine(path).level.value == "red"
    assert not verify(path, repair=True).ok
    swap(path, active)
    with sparklog.open(path, "rw") as log:
        assert not log.offline()
        swap(path, active)
        with pytest.raises(sparklog.DataCorruptionError, match="another partition or another log"):
            log.append("t", rows, partition=0)
        swap(path, active)
    with sparklog.open(path, "rw") as log:
        log.append("t", rows, partition=0)
        assert log.offsets("t") == {0: (0, 49), 1: (0, 48)}
    assert verify(path).ok


def test_a_snapshot_keeps_what_the_last_batches_are(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    with sparklog.open(path, "rw") as log:
        commits = commits_of(log)
        assert commits is not None
        with commits.exclusive():
            commits.write_snapshot()
            assert len(commits.state.tails) == 2
    swap(path, bases(path)[-1])
    with sparklog.open(path, "rw") as log:
        assert sorted(log.offline()) == [("t", 0), ("t", 1)]


def test_all_logs_of_two_partitions_swapped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make(path)
    for base in bases(path):
        swap(path, base, (".log",))
    assert {finding.partition for finding in damage(path)} == {0, 1}
    assert not verify(path, repair=True).ok


def test_a_segment_of_another_log(tmp_path: Path) -> None:
    """One that reaches over the next segment's base, too."""
    path, other = tmp_path / "log", tmp_path / "other"
    make(path)
    make(other)
    known = bases(path)
    name = f"t-0/{known[1]:020d}.log"
    following = (other / f"t-0/{known[2]:020d}.log").read_bytes()
    (path / name).write_bytes((other / name.replace("t-0", "t-1")).read_bytes() + following)
    found = damage(path)
    assert (found[0].partition, found[0].first, found[0].end) == (0, known[1], known[2])
    assert "not those that were committed" in found[0].what
    log = sparklog.open(path)
    with log, pytest.raises(sparklog.DataCorruptionError, match="overlaps the next segment"):
        log.read("t", [0]).read_all()


def without_crcs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let verify read the ledger as an older sparklog wrote it."""
    add = Appends.add
    monkeypatch.setattr(Appends, "add", lambda self, first, end, crc: add(self, first, end, None))


@pytest.mark.parametrize("same", [False, True])
def test_records_of_an_older_sparklog_tell_the_boundaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    path = tmp_path / "log"
    make(path, size=lambda n, p: 2 if same or n == 8 or p else 1 if n < 8 else 3)
    without_crcs(path, monkeypatch)
    assert verify(path).ok
    assert set(bases(path)) & set(bases(path, 1)) >= {0}
    swap(path, 0)
    assert bool(damage(path)) is not same  # the PROTOCOL page says so


def test_the_golden_log_of_an_older_sparklog_is_verified_as_before(tmp_path: Path) -> None:
    path = Path(shutil.copytree(paths.GOLDEN / "sparklog-1" / "logdir", tmp_path / "log"))
    assert verify(path).ok


def test_what_compaction_and_erasure_rewrote_is_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "log"
    clock = ManualClock(T0)
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", partitions=2, config=CONFIG)
        log.create_topic("c", config=CONFIG | {"cleanup.policy": "compact"})
        for n in range(40):
            rows = pa.table(
                {"key": [f"{n % 7}", f"x{n}"], "value": ["", None] if n % 5 else ["a", "b"]}
            )
            log.append("c", rows, partition=0)
            log.append("t", rows, partition=n % 2)
        clean_partition(commits_of(log), "c", 0)
        erase(path, "t", [b"3", b"x10"], clock=clock)
        clock.advance(10**9)
        clean_partition(commits_of(log), "c", 0)
        assert verify(path).ok
    assert verify(path).ok


def test_a_ledger_record_keeps_its_checksums() -> None:
    raw = (
        b'{"v":1,"kind":"append","ends":{"t":{"1":[0,4],"0":[2,3]},"u":{"0":[7,9]}},'
        b'"crcs":[5,6,4294967295],"tails":[7,8,9],"time":1,"epoch":0}'
    )
    record = decode(raw, path="x", offset=0)
    assert record.crcs == {("t", 1): 5, ("t", 0): 6, ("u", 0): 4294967295}
    assert record.tails == {("t", 1): 7, ("t", 0): 8, ("u", 0): 9}
    assert encode(record) == raw
