"""A local segment whose batches are not those that were committed gets no copy."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from crc32c import crc32c

import sparklog
from sparklog.clock import ManualClock
from sparklog.format.scan import scan
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import ledger_bases
from sparklog.service import erase, verify
from sparklog.service.verification.tier_verifier import verify_tier
from sparklog.storage.committed_appends import Appends
from sparklog.storage.staging import Framing
from sparklog.testing.faultstore import FaultStore
from tests import paths
from tests.service.logs import told
from tests.service.tiering.test_copy_confirmation import shrink
from tests.service.tiering.test_remote_log_manager import bases, once
from tests.service.verification.test_appends import swap
from tests.tiered.archives import copies_of, readable
from tests.tiered.logs import TIERED, filled, grow, rows

NOT_COMMITTED = "are not those that were committed"


def copied(log: sparklog.Log, clock: ManualClock, p: int = 0) -> list[tuple[int, int]]:
    copies = [copy for copy in copies_of(log, clock) if copy.partition == p]
    return sorted((copy.base, copy.end) for copy in copies)


def closed(path: str) -> list[tuple[int, int]]:
    known = bases(path)
    return list(itertools.pairwise(known))


def test_swapped_segments_are_not_copied(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 60, partitions=2) as log:
        wanted = closed(path)
        base, end = wanted[3]
        swap(Path(path), base)
        shrink(log)
        for _ in range(4):
            report = once(path, clock, store)
            for p in range(2):
                file = Path(path, f"t-{p}", f"{base:020d}.log")
                (error,) = [e for e in report.errors if str(file) in e]
                assert NOT_COMMITTED in error and f"they belong to t-{1 - p}" in error
                assert f"[{base}, {end})" in error
                assert (base, end) not in copied(log, clock, p)
                assert file.exists()
        swap(Path(path), base)  # as the message advises
        assert not once(path, clock, store).errors
        for p in range(2):
            assert copied(log, clock, p) == wanted
        readable(log, clock, store)
        assert not verify_tier(path, store=store, deep=True).findings
        assert verify(path).ok


def test_a_segment_of_another_log_is_not_copied(
    path: str, clock: ManualClock, store: FaultStore, tmp_path: Path
) -> None:
    start = clock()
    with filled(path, clock) as log:
        with filled(tmp_path / "other", ManualClock(start + 1)):
            pass
        base, end = closed(path)[1]
        name = f"t-0/{base:020d}.log"
        own = Path(path, name).read_bytes()
        shutil.copyfile(tmp_path / "other" / name, Path(path, name))
        (error,) = once(path, clock, store).errors
        assert NOT_COMMITTED in error and "restore the segment's files from a copy" in error
        assert (base, end) not in copied(log, clock)
        Path(path, name).write_bytes(own)
        assert not once(path, clock, store).errors
        assert copied(log, clock) == closed(path)


def append_batches(log: sparklog.Log, numbers: range, at_ms: int, partition: int) -> None:
    """Append the records in one commit, and each in a batch of its own."""
    stager = log.stager(Framing(batch_size=1))
    stager.add(log.topic("t"), rows(numbers, at_ms).to_batches()[0], partition=partition)
    log.commit(stager.finish())


def change(segment: Path) -> None:
    """Put another valid batch in the place of the first one."""
    data = bytearray(segment.read_bytes())
    table = scan(data, path=str(segment)).table
    end = int(table["size"][0])
    data[end - 20] ^= 1
    data[17:21] = crc32c(data[21:end]).to_bytes(4, "big")
    segment.write_bytes(data)


@pytest.mark.parametrize("number", [1, 4, 9])
def test_appends_of_several_segments(
    path: str, clock: ManualClock, store: FaultStore, tmp_path: Path, number: int
) -> None:
    """Segments hold parts of appends, and some hold nothing else."""
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", 2, config=TIERED)
        told(log)
        for n in range(3):
            for p in range(2):
                append_batches(log, range(n * 20, n * 20 + 20), clock() + p, p)
        wanted = closed(path)
        assert len(wanted) > 15
        base, end = wanted[number]
        shutil.copytree(path, tmp_path / "copy")
        swap(Path(path), base)
        report = once(path, clock, store)
        first = base // 20 * 20
        for p, error in enumerate(sorted(report.errors)):  # one, not one per segment
            assert f"t-{p}, offsets [{first}, {first + 20})" in error
            assert "restore the files of these segments from a copy" in error
        for p in range(2):
            assert (base, end) not in copied(log, clock, p)
        if number == 1:  # the message advises either
            for p, (start, _) in itertools.product(range(2), wanted):
                for file in (tmp_path / "copy" / f"t-{p}").glob(f"{start:020d}.*"):
                    shutil.copyfile(file, Path(path, f"t-{p}", file.name))
        else:
            swap(Path(path), base)
        assert not once(path, clock, store).errors
        for p in range(2):
            assert copied(log, clock, p) == wanted


def test_the_first_segments_of_an_append_are_gone(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """Local retention deleted them, so that the rest of the append is not compared."""
    with filled(path, clock, 1, local_retention_bytes="0") as log:
        append_batches(log, range(20), clock(), 0)
        for _ in range(2):
            assert not once(path, clock, store).errors
        first = bases(path)
        grow(log, clock, 4)
        assert not once(path, clock, store).errors
        assert len(first) == 1 and copied(log, clock)[-1][1] > first[0]


def test_a_log_without_checksums_is_copied(
    path: str, clock: ManualClock, store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PROTOCOL page says that a swap with equal boundaries is not found then."""
    add = Appends.add
    monkeypatch.setattr(Appends, "add", lambda self, first, end, crc: add(self, first, end, None))
    with filled(path, clock, 60, partitions=2) as log:
        swap(Path(path), closed(path)[3][0])
        assert not once(path, clock, store).errors
        assert copied(log, clock) == closed(path)


def test_the_golden_log_of_an_older_sparklog_is_copied(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    path = str(shutil.copytree(paths.GOLDEN / "sparklog-1" / "logdir", tmp_path / "log"))
    with sparklog.open(path, "rw", clock=clock) as log:
        ends = {p: end for p, (_, end) in log.offsets("events").items()}
        log.alter_topic("events", config=TIERED | {"internal.segment.bytes": "200"})
        for p in ends:
            log.append("events", rows([0], clock()), partition=p)
        report = once(path, clock, store)
        assert not report.errors
        assert {each.partition: each.end for each in report.uploaded} == ends


def test_what_compaction_and_erasure_rewrote_is_copied(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    compact = TIERED | {"cleanup.policy": "compact"}
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=TIERED)
        log.create_topic("c", config=compact)
        told(log)
        for n in range(40):
            given = pa.table({"key": [f"{n % 7}", f"x{n}"], "value": ["a" * 60, "b" * 60]})
            log.append("c", given, partition=0)
            log.append("t", given, partition=0)
        clean_partition(commits_of(log), "c", 0)
        erase(path, "t", [b"3", b"x10"], clock=clock)
        log.alter_topic("c", config={"cleanup.policy": "delete"})
        report = once(path, clock, store)
        assert not report.errors and {each.topic for each in report.uploaded} == {"c", "t"}


def test_only_ledger_segments_that_are_needed_are_read(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """The ledger is read from the last snapshot before the first append that is copied."""
    with filled(path, clock, 12) as log:
        commits = commits_of(log)
        for _ in range(2):
            with commits.exclusive():
                commits.write_snapshot()
            grow(log, clock, 12)
        first, second, _ = ledger_bases(commits.fs, path)
        wanted = closed(path)
        for base, _ in (wanted[0], wanted[-1]):
            change(Path(path, "t-0", f"{base:020d}.log"))
        Path(path, "__sparklog_commits-0", f"{first:020d}.log").unlink()
        (error,) = once(path, clock, store).errors  # the first append is unknown by now
        assert f"{wanted[-1][0]:020d}.log" in error
        assert copied(log, clock) == wanted[:-1]
        Path(path, "__sparklog_commits-0", f"{second:020d}.log").unlink()
        (again,) = once(path, clock, store).errors
        assert again == error
