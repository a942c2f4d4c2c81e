"""A log that was restored has another history, and who has read the old one is told."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log, OffsetOutOfRangeError
from sparklog.clock import ManualClock
from sparklog.fs import LOCAL
from sparklog.log.log import view_of
from sparklog.log.partition_reader import reader_of
from sparklog.log.truncation_detection import diverging_offset, origin_of
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.service import verify
from sparklog.storage.group_store import Groups
from sparklog.storage.groups import Origin
from sparklog.storage.leader_epochs import HISTORY_EPOCH, new_epoch

E1, E2 = HISTORY_EPOCH + 10, HISTORY_EPOCH + 20
PLAIN, ADOPTED = [(0, 0)], [(0, 0), (3, 6)]
RESTORED = [(0, 0), (E1, 4)]
TWICE = [(0, 0), (E1, 4), (E2, 7)]
BY_A_BROKER = [(0, 0), (5, 20)]  # the entry of E1, from 4 on, is gone: 5 is below it


@pytest.mark.parametrize(
    ("entries", "offset", "origin", "end", "parted"),
    [
        ([], 10, None, 20, None),
        (PLAIN, 10, None, 20, None),
        (PLAIN, 10, Origin(0, 0), 8, 8),
        (PLAIN, 10, None, 8, 8),
        (ADOPTED, 10, None, 20, None),  # an older sparklog's, of any small epoch
        (ADOPTED, 10, Origin(0, 0), 20, 6),
        (ADOPTED, 10, Origin(3, 6), 20, None),
        (RESTORED, 4, None, 20, None),
        (RESTORED, 10, None, 20, 4),
        (RESTORED, 10, None, 7, 4),
        (RESTORED, 10, Origin(0, 0), 20, 4),
        (RESTORED, 10, Origin(3, 6), 20, 4),
        (RESTORED, 10, Origin(E1, 4), 20, None),
        (RESTORED, 10, Origin(E2, 6), 20, 6),  # E2 was never here: restored to before it
        (RESTORED, 10, Origin(E2, 6), 5, 5),
        (TWICE, 10, Origin(E1, 4), 20, 7),
        (TWICE, 7, Origin(E1, 4), 20, None),
        (TWICE, 10, None, 20, 4),
        (BY_A_BROKER, 10, Origin(E1, 4), 20, 4),  # unless the batch says otherwise: below
        ([(E1, 100)], 50, None, 200, None),  # before the log start
        ([(E1, 100)], 150, None, 200, 100),
        ([(E1, 100)], 150, Origin(E1, 90), 200, None),
    ],
)
def test_where_histories_part(
    entries: list[tuple[int, int]], offset: int, origin: Origin | None, end: int, parted: int | None
) -> None:
    def by_entries(at: int) -> int:
        return max(epoch for epoch, start in entries if start <= at)

    assert diverging_offset(entries, offset, origin, end, by_entries) == parted
    assert diverging_offset(entries, offset, origin, end, lambda _: None) == parted


def test_the_batch_itself_has_the_last_word() -> None:
    assert diverging_offset(BY_A_BROKER, 10, Origin(E1, 4), 20, lambda _: E1) is None
    assert diverging_offset(BY_A_BROKER, 10, Origin(E1, 4), 20, lambda _: E2) == 4


def test_origins() -> None:
    assert origin_of([], 5) is None
    assert origin_of([(3, 10)], 10) is None
    assert [origin_of(TWICE, n) for n in (1, 4, 5, 7, 8)] == [
        Origin(*TWICE[n]) for n in (0, 0, 1, 1, 2)
    ]


def test_a_later_history_has_a_greater_epoch() -> None:
    now_ms = ManualClock()()
    assert HISTORY_EPOCH < new_epoch(3, now_ms) < new_epoch(3, now_ms + 1000) < 2**31 // 2
    assert new_epoch(2**30, now_ms) == 2**30 + 1
    assert new_epoch(0, 0) == HISTORY_EPOCH


# --- logs ----------------------------------------------------------------------------------------


def groups_in(home: str | Path) -> Groups:
    return Groups(GroupFiles(LOCAL, str(home)))


@pytest.fixture
def path(tmp_path: Path, clock: ManualClock) -> Path:
    """Topic t: four records; `copy` beside it is of that time."""
    with write(tmp_path / "log", clock) as log:
        log.create_topic("t")
        append(log, 4)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    return tmp_path / "log"


def write(path: Path, clock: ManualClock) -> Log:
    return sparklog.open(path, "rw", clock=clock)


def append(log: Log, count: int, value: str = "old") -> None:
    log.append("t", pa.table({"value": [value] * count}))


def restore(path: Path) -> None:
    path.rename(path.with_name(f"gone-{path.stat().st_ino}"))
    shutil.copytree(path.with_name("copy"), path)


def epochs(path: Path) -> list[tuple[int, int]]:
    return reader_of(view_of(sparklog.open(path)), "t", 0).segments.leader_epochs()


def test_only_a_copy_begins_a_history(path: Path, clock: ManualClock) -> None:
    for _ in range(2):
        with write(path, clock) as log:
            append(log, 1)
    assert epochs(path) == [(0, 0)]
    moved = path.rename(path.with_name("moved"))  # the same files
    with write(moved, clock) as log:
        append(log, 1)
    assert epochs(moved) == [(0, 0)]
    moved.rename(path)
    restore(path)
    with write(path, clock):
        pass
    assert epochs(path) == [(0, 0)]  # nothing was written under it yet
    with write(path, clock) as log:  # the ledger remembers it
        append(log, 1)
    assert epochs(path) == [(0, 0), (new_epoch(0, clock()), 4)]
    assert verify(path).ok


@pytest.mark.parametrize("left", ["closed", "open"])
def test_each_restored_copy_has_its_own(path: Path, clock: ManualClock, left: str) -> None:
    if left == "open":  # as a copy that was made under a writer
        (path.with_name("copy") / "sparklog_open").mkdir()
    found = []
    for _ in range(2):
        clock.advance(60_000)
        restore(path)
        with write(path, clock) as log:
            append(log, 3)
        found += [epochs(path)[1]]
    assert [start for _, start in found] == [4, 4]
    assert found[0][0] < found[1][0]


def test_a_group_that_was_ahead_is_told(path: Path, clock: ManualClock) -> None:
    with write(path, clock) as log:
        append(log, 6)
        log.commit_offsets("g", {"t": {0: 10}})
        files = [p for p in path.iterdir() if p.name.startswith("sparklog.readers-")]
        assert groups_in(path).positions("g")["t", 0].origin == Origin(0, 0)
    restore(path)
    with write(path, clock) as log:
        append(log, 8, "new")
        assert log.read("t", group="g").read_all().num_rows == 12  # its file went back, too
        for file in files:
            name = next(p for p in path.parent.glob("gone-*"))
            shutil.copy(name / file.name, path)
        said = r"offsets \[4, 10\) of t-0 were read in another history.*start=\{0: 4\}"
        with pytest.raises(OffsetOutOfRangeError, match=said):
            log.read("t", group="g")
        assert log.read("t", group="g", start={0: 4}).read_all().num_rows == 8
        assert log.read("t", group="g").read_all().num_rows == 0
        kept = groups_in(path).positions("g")["t", 0]
        assert (kept.offset, kept.origin) == (12, Origin(new_epoch(0, clock()), 4))


def test_an_older_sparklogs_positions_go_on(path: Path, clock: ManualClock) -> None:
    """They remember no epoch: what that can't tell is not held against them."""
    with write(path, clock) as log:
        append(log, 6)
    groups_in(path).commit("g", {("t", 0): 8}, now_ms=clock(), host="h")
    assert sparklog.open(path).read("t", group="g").read_all().num_rows == 2


def test_damaged_epochs_are_no_divergence(
    path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with write(path, clock) as log:
        log.commit_offsets("g", {"t": {0: 2}})
        (path / "t-0/leader-epoch-checkpoint").write_text("nonsense")
        assert log.read("t", group="g").read_all().num_rows == 2
    assert "can't check whether another history is read" in caplog.text
