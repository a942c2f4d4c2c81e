"""A fork of a log dir: its files, of which none is ever written by both logs.

See also tests/log/test_forking.py."""

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog import (
    InvalidRequestError,
    Log,
    LogLockedError,
)
from sparklog.clock import ManualClock, monotonic_ms, system_clock
from sparklog.common import TopicPartition
from sparklog.format.scan import scan
from sparklog.fs import LOCAL
from sparklog.fs.files import LocalFile
from sparklog.log.due_segments import NO_CONSTRAINTS
from sparklog.log.producer_state import ProducerState
from sparklog.logdir import staged_directory
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.forking.fork import Forked
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import LedgerWriter
from sparklog.logdir.lock import LOCK_NAME
from sparklog.logdir.offset_checkpoints import CLEANED, CLEANER, read_offsets
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.recovery.segment_rebuild import scan_segment, write_indexes
from sparklog.logdir.retention.segment_deletion import delete_due, roll
from sparklog.logdir.staged_directory import WAITING_NAME
from sparklog.service import verify
from tests.log.forks import CONFIG, Rows, check, commit, filled, fork, held
from tests.oracle import Oracle


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t", partitions=2, config=CONFIG)
        yield log


def files_of(path: str) -> dict[str, tuple[int, bytes]]:
    """{name: (inode, contents)} of a partition's log files."""
    found = {}
    for name in sorted(os.listdir(path)):
        if name.endswith((".log", ".index", ".timeindex")):
            file = os.path.join(path, name)
            found[name] = os.stat(file).st_ino, Path(file).read_bytes()
    return found


def test_later_leader_epochs_stay_behind(log: Log, clock: ManualClock, tmp_path: Path) -> None:
    after = filled(log, clock, 2)
    with commits_of(log).exclusive():
        commits_of(log).begin_history()  # as after a restore
    commit(log, "q", 2)
    fork(log.path, tmp_path / "new", writer="q", batch=1, clock=clock)
    for p in (0, 1):
        end = len(after[1]["t", p])
        assert read_epochs(LOCAL, log.topic("t").dirs[p])[-1][1] >= end
        epochs = read_epochs(LOCAL, str(tmp_path / "new" / f"t-{p}"))
        assert epochs
        assert [start for _, start in epochs if start >= end] == []


def test_closed_segments_are_linked_and_the_last_one_is_its_own(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    filled(log, clock)
    before = {p: files_of(path) for p, path in log.topic("t").dirs.items()}
    made = fork(log.path, tmp_path / "new", writer="q", batch=6, clock=clock)
    assert (tmp_path / "new" / ".kafka_cleanshutdown").exists()
    assert {p: files_of(path) for p, path in log.topic("t").dirs.items()} == before
    assert made.linked_files > 12
    assert 0 < made.copied_bytes < 2 * 700
    for p, path in log.topic("t").dirs.items():
        old, new = files_of(path), files_of(str(tmp_path / "new" / f"t-{p}"))
        last = max(name for name in new if name.endswith(".log"))
        for name, (inode, _) in new.items():
            assert (inode == old[name][0]) == (name[:20] < last[:20]), name


def test_a_fork_whose_end_falls_between_two_segments(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    after = filled(log, clock)
    with commits_of(log).exclusive():
        roll(commits_of(log), [TopicPartition("t", 0), TopicPartition("t", 1)])
    commit(log, "q", 9)
    after[9] = held(log)
    with commits_of(log).exclusive():
        roll(commits_of(log), [TopicPartition("t", 0)])
    commit(log, "q", 10)
    made = fork(log.path, tmp_path / "new", writer="q", batch=9, clock=clock)
    check(tmp_path / "new", after[9])
    old = {inode for inode, _ in files_of(log.topic("t").dirs[0]).values()}
    new = files_of(str(tmp_path / "new" / "t-0"))
    newest = [name for name in new if int(name[:20]) == made.offsets["t"][0][1]]
    assert len(newest) == 3
    assert not {new[name][0] for name in newest} & old


def test_the_two_go_their_own_ways(log: Log, clock: ManualClock, tmp_path: Path) -> None:
    """Appends, retention and the end of one log leave the other one alone."""
    after = filled(log, clock)
    fork(log.path, tmp_path / "new", writer="q", batch=5, clock=clock)
    with sparklog.open(tmp_path / "new", "rw", clock=clock) as new:
        new.alter_topic("t", config={"retention.bytes": 1, "file.delete.delay.ms": 0})
        for batch in range(6, 9):
            commit(new, "q", batch)
        delete_due(
            commits_of(new),
            {TopicPartition("t", 0): NO_CONSTRAINTS},
            now_ms=clock(),
            budget_ms=1000,
        )
        assert new.offsets("t")[0][0] > 0
    now = held(log)
    assert {key: rows[: len(after[8][key])] for key, rows in now.items()} == after[8]
    log.delete_topic("t")
    log.close()
    with sparklog.open(tmp_path / "new") as reader:
        end = reader.offsets("t")[1][1]
        assert [offset for offset, _ in held(reader)["t", 1]] == list(range(end))
    assert verify(str(tmp_path / "new")).ok


def test_from_any_segment_of_the_ledger(
    log: Log, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LedgerWriter, "segment_bytes", 900)
    after = filled(log, clock)
    for batch in range(0, 9, 2):
        fork(log.path, tmp_path / f"{batch}", writer="q", batch=batch, clock=clock)
        check(tmp_path / f"{batch}", after[batch])


class TestCompaction:
    @pytest.fixture
    def after(self, log: Log, clock: ManualClock) -> dict[int, Rows]:
        log.alter_topic("t", config={"cleanup.policy": "compact"})
        after = {}
        for batch in range(12):
            clock.advance(1000)
            commit(log, "q", batch, keys=7)
            after[batch] = held(log)
        return after

    def test_a_cleaned_part_below_the_end_is_taken_as_it_is(
        self, log: Log, clock: ManualClock, tmp_path: Path, after: dict[int, Rows]
    ) -> None:
        cleaned = clean_partition(commits_of(log), "t", 0).next_dirty
        assert cleaned is not None
        kept = {offset for offset, _ in held(log)["t", 0]}
        assert len(kept) < 36
        for batch in range(12):
            end = 3 * batch + 3
            if end < cleaned:
                with pytest.raises(InvalidRequestError, match=r"t-0 was to end .* compacted"):
                    fork(log.path, tmp_path / "no", writer="q", batch=batch, clock=clock)
                continue
            new = tmp_path / str(batch)
            fork(log.path, new, writer="q", batch=batch, clock=clock)
            rows = {key: list(rows) for key, rows in after[batch].items()}
            rows["t", 0] = [row for row in rows["t", 0] if row[0] in kept]
            check(new, rows)
            assert read_offsets(LOCAL, str(new), CLEANER) == {("t", 0): cleaned}
            assert read_offsets(LOCAL, str(new), CLEANED) == {("t", 0): cleaned}
        assert end >= cleaned

    def test_a_cleaning_that_removed_nothing_there_is_no_hindrance(
        self, log: Log, clock: ManualClock, tmp_path: Path
    ) -> None:
        log.alter_topic("t", config={"cleanup.policy": "compact"})
        for batch in range(12):
            commit(log, "q", batch, keys=100)
            if batch == 2:
                after = held(log)
        cleaned = clean_partition(commits_of(log), "t", 0).next_dirty
        assert cleaned is not None
        assert cleaned > 9
        fork(log.path, tmp_path / "new", writer="q", batch=2, clock=clock)
        check(tmp_path / "new", after)
        assert read_offsets(LOCAL, str(tmp_path / "new"), CLEANER) == {}

    def test_a_cleaning_that_died_before_its_checkpoint(
        self, log: Log, clock: ManualClock, tmp_path: Path, after: dict[int, Rows]
    ) -> None:
        clean_partition(commits_of(log), "t", 0)
        os.unlink(os.path.join(log.path, CLEANER))
        with pytest.raises(InvalidRequestError, match=r"t-0 was to end .* compacted"):
            fork(log.path, tmp_path / "new", writer="q", batch=1, clock=clock)

    @pytest.mark.parametrize("rolled", [False, True])
    def test_its_last_records_may_have_been_cleaned_away(
        self, log: Log, clock: ManualClock, tmp_path: Path, rolled: bool
    ) -> None:
        """The end is where it was, though the batches below it end before."""
        log.alter_topic("t", config={"cleanup.policy": "compact"})
        commit(log, "q", 0, keys=99)
        commit(log, "q", 1, keys=99)
        rows = held(log)
        if rolled:
            with commits_of(log).exclusive():
                roll(commits_of(log), [TopicPartition("t", 0)])
        else:
            commit(log, "q", 2, keys=99)
        path = Path(log.topic("t").dirs[0]) / "00000000000000000000.log"
        first, second, *rest = scan(path.read_bytes(), path=str(path)).table
        data = path.read_bytes()
        following = data[rest[0]["position"] :] if rest else b""
        path.write_bytes(data[: first["size"]] + following)
        whole = scan_segment(
            LOCAL, str(path.parent), 0, producers=ProducerState(0), interval_bytes=100, gaps=True
        )
        write_indexes(LOCAL, str(path.parent), whole)
        made = fork(log.path, tmp_path / "new", writer="q", batch=1, clock=clock)
        assert made.offsets["t"] == {0: (0, 6), 1: (0, 6)}
        rows["t", 0] = rows["t", 0][: second["base_offset"]]
        check(tmp_path / "new", rows)


class TestPlaces:
    def test_several_log_dirs(self, tmp_path: Path, clock: ManualClock) -> None:
        path = f"{tmp_path}/a,{tmp_path}/b"
        with sparklog.open(path, "rw", clock=clock) as log:
            log.create_topic("t", partitions=4, config=CONFIG)
            after = filled(log, clock, 5)
            fork(path, f"{tmp_path}/c,{tmp_path}/d", writer="q", batch=3, clock=clock)
            fork(path, f"{tmp_path}/one", writer="q", batch=3, clock=clock)
            with pytest.raises(InvalidRequestError, match="3 directories"):
                fork(path, f"{tmp_path}/e,{tmp_path}/f,{tmp_path}/g", writer="q", batch=3)
        check(f"{tmp_path}/c,{tmp_path}/d", after[3])
        check(f"{tmp_path}/one", after[3])
        assert sorted(os.listdir(tmp_path)) == ["a", "b", "c", "d", "one"]
        assert len([n for n in os.listdir(tmp_path / "d") if n.startswith("t-")]) == 2
        assert not os.path.exists(tmp_path / "d" / WAITING_NAME)

    def test_another_file_system_gets_copies(
        self, log: Log, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        after = filled(log, clock, 5)

        def link(src: str, dst: str) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", link)
        made = fork(log.path, tmp_path / "new", writer="q", batch=3, clock=clock)
        assert made.linked_files == 0
        assert made.copied_bytes > 1000
        check(tmp_path / "new", after[3])

    def test_a_place_that_is_taken_or_in_the_way(
        self, log: Log, clock: ManualClock, tmp_path: Path
    ) -> None:
        filled(log, clock, 1)
        (tmp_path / "there").mkdir()
        for where, match in {
            "there": "exists",
            "log": "are nested",
            "log/in": "are nested",
            ".": "are nested",
            "no/parent": "does not exist",
        }.items():
            with pytest.raises(InvalidRequestError, match=match):
                fork(log.path, tmp_path / where, writer="q", batch=0, clock=clock)
        with pytest.raises(InvalidRequestError, match="no ledger"):
            fork(tmp_path / "there", tmp_path / "new", writer="q", batch=0)
        assert sorted(os.listdir(tmp_path)) == ["log", "there"]

    def test_what_a_crash_left_goes_and_what_is_under_way_stays(
        self, log: Log, clock: ManualClock, tmp_path: Path
    ) -> None:
        filled(log, clock, 1)
        left = tmp_path / f".new.fork-{'0' * 32}"
        (left / "new" / "t-0").mkdir(parents=True)
        (left / "new" / "t-0" / "00000000000000000000.log").write_bytes(b"x")
        with LOCAL.open_lock(str(left / staged_directory.LOCK_NAME)) as held_lock:
            assert held_lock.try_lock(0, 1, exclusive=True)
            with pytest.raises(LogLockedError, match="another process"):
                fork(log.path, tmp_path / "new", writer="q", batch=0, clock=clock)
        fork(log.path, tmp_path / "new", writer="q", batch=0, clock=clock)
        assert sorted(os.listdir(tmp_path)) == ["log", "new"]

    def test_a_log_that_is_closed_or_was_killed(
        self, log: Log, clock: ManualClock, tmp_path: Path
    ) -> None:
        after = filled(log, clock, 4)
        log.close()
        fork(log.path, tmp_path / "closed", writer="q", batch=2, clock=clock)
        check(tmp_path / "closed", after[2])
        killed = sparklog.open(log.path, "rw", clock=clock)
        commit(killed, "q", 4)
        os.unlink(os.path.join(log.path, LOCK_NAME))
        fork(log.path, tmp_path / "killed", writer="q", batch=2, clock=clock)
        check(tmp_path / "killed", after[2])
        del killed


def test_ten_gigabytes_are_not_read(
    log: Log, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed segments of 1 GiB each, sparse behind their records."""
    after = filled(log, clock)
    sizes = {}
    for path in log.topic("t").dirs.values():
        for file in sorted(Path(path).glob("*.log"))[:5]:
            sizes[str(file)] = file.stat().st_size
            os.truncate(file, 1 << 30)
    counts = [0]
    pread = LocalFile.pread

    def counted(file: LocalFile, size: int, at: int) -> bytes:
        data = pread(file, size, at)
        counts[0] += len(data)
        return data

    monkeypatch.setattr(LocalFile, "pread", counted)
    made = fork(log.path, tmp_path / "new", writer="q", batch=8, clock=clock)
    assert made.linked_bytes > 10 << 30
    assert made.copied_bytes < 10_000
    assert counts[0] < 200_000
    counts[0] = 0
    sparklog.open(tmp_path / "new", "rw", clock=clock).close()
    assert counts[0] < 200_000
    for path, size in sizes.items():
        os.truncate(path, size)
    check(tmp_path / "new", after[8])


def test_a_fork_that_waits_for_what_it_belongs_to(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    """It goes if that never came and who made it was killed; never once somebody has used it."""
    after = filled(log, clock, 4)
    new, whole, maker = tmp_path / "new", tmp_path / "whole", tmp_path / ".whole.make-1"
    given: Any = {"writer": "q", "waits_for": f"{whole}\n{maker}", "clock": clock}

    def is_refused() -> bool:
        try:
            fork(log.path, new, batch=3, **given)
        except InvalidRequestError as error:
            return "exists" in str(error)
        return False

    fork(log.path, new, batch=1, **given)
    assert is_refused()  # who made it is gone without a trace: it is nobody's to remove
    maker.mkdir()
    with LOCAL.open_lock(str(maker / staged_directory.LOCK_NAME)) as lock:
        assert lock.try_lock(0, 1, exclusive=True)
        assert is_refused()  # it is still being made
    whole.mkdir()
    assert is_refused()  # it came
    whole.rmdir()
    assert not is_refused()
    sparklog.open(new, "rw", clock=clock).close()
    assert is_refused()  # somebody has used it
    staged_directory.arrived(LOCAL, [str(new)])
    check(new, after[3])


def test_unsynced_commits_are_made_durable_first(tmp_path: Path, clock: ManualClock) -> None:
    options = {"flush": "none"}
    with sparklog.open(tmp_path / "log", "rw", clock=clock, options=options) as log:
        log.create_topic("t", partitions=2, config=CONFIG)
        after = filled(log, clock, 5)
        assert commits_of(log).state.unsynced
        fork(log.path, tmp_path / "new", writer="q", batch=3, clock=clock)
        with commits_of(log).exclusive():
            assert not commits_of(log).state.unsynced
    check(tmp_path / "new", after[3])


def test_while_others_write_delete_and_clean(tmp_path: Path) -> None:
    """Another thread commits, rolls, deletes and compacts; each fork is one commit's state."""
    path, after, stop = tmp_path / "log", dict[int, list[bytes]](), threading.Event()
    values: list[bytes] = []

    def write() -> None:
        with sparklog.open(path, "rw") as log:
            for batch in itertools.count():
                if stop.is_set():
                    return
                commit(log, "q", batch, count=2, keys=5)
                values.extend(f"q {batch} {n}".ljust(40).encode() for n in range(2))
                after[batch] = list(values)
                if batch % 5 == 0:
                    clean_partition(commits_of(log), "c", 0)
                if batch % 7 == 0:
                    start = max(0, len(values) - 40)
                    log.delete_records("t", {0: start})
                    delete_due(
                        commits_of(log),
                        {TopicPartition("t", 0): NO_CONSTRAINTS},
                        now_ms=system_clock(),
                        budget_ms=100,
                    )

    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=CONFIG | {"file.delete.delay.ms": 0})
        log.create_topic("c", config=CONFIG | {"cleanup.policy": "compact"})
    writer = threading.Thread(target=write)
    writer.start()
    made = refused = 0
    try:
        until = monotonic_ms() + 240_000
        while made < 12 and monotonic_ms() < until:
            if len(after) < 2 * made + 2:
                continue
            batch, new = max(after), str(tmp_path / f"new{made}")
            try:
                fork(path, new, writer="q", batch=batch)
            except InvalidRequestError as error:
                if "compacted" not in str(error):
                    raise
                refused += 1
                continue
            with sparklog.open(new) as log:
                rows = [value for _, value in held(log)["t", 0]]
                assert rows == after[batch][len(after[batch]) - len(rows) :]
                assert log.offsets("t")[0][1] == len(after[batch])
            found = verify(new)
            assert found.ok, str(found)
            made += 1
    finally:
        stop.set()
        writer.join()
    assert made == 12, refused
    assert verify(str(path)).ok


@pytest.mark.kafka
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_loads_it_and_changes_nothing(
    oracle: Oracle, log: Log, clock: ManualClock, tmp_path: Path, clean: bool
) -> None:
    after = filled(log, clock)
    made: Forked = fork(log.path, tmp_path / "new", writer="q", batch=6, clock=clock)
    for p in (0, 1):
        opened = oracle.open(
            tmp_path / "new" / f"t-{p}", clean=clean, records=True, config=CONFIG, now_ms=clock()
        )
        assert (opened.start, opened.end) == made.offsets["t"][p]
        assert [(r.offset, r.value) for r in opened.records] == after[6]["t", p]
        assert opened.untouched, (opened.changed, opened.created, opened.removed)
    check(log.path, held(log))


def test_a_segment_that_ends_too_early_is_restored_and_forked(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    after = filled(log, clock, 3)
    part = tmp_path / "log/t-0"
    segment = max(part.glob("*.log"))
    raw = segment.read_bytes()
    first_batch = 12 + int.from_bytes(raw[8:12])  # its length counts from behind that field
    segment.write_bytes(raw[:first_batch])
    with pytest.raises(sparklog.DataCorruptionError, match="copy, then fork again"):
        fork(log.path, tmp_path / "new", writer="q", batch=2, clock=clock)
    assert not (tmp_path / "new").exists()
    segment.write_bytes(raw)
    fork(log.path, tmp_path / "new", writer="q", batch=2, clock=clock)
    check(tmp_path / "new", after[2])
