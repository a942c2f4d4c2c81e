"""Producers of many clients in one commit: the same as one after the other, whatever happens."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.errors import CommitUnknownError, DataCorruptionError, InvalidRequestError
from sparklog.log.admin import create_topic
from sparklog.log.producing import Outcome, Produced, produce
from sparklog.logdir.home import commits_of
from sparklog.storage.commits import Change, Chunk, CommitLog
from sparklog.storage.ledger_records import LedgerRecord
from sparklog.testing.commits_contract import sent, spans
from sparklog.testing.crashes import every_crash
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faultstore import Faults, FaultStore
from tests.diskless.test_commit_faults import handle

LOSSY = Faults(reset=0.1, busy=0.1, lost=0.15, late=0.1, again=0.1, conflict=0.1)


def in_store() -> CommitLog:
    return handle(FaultStore())


def in_directory() -> CommitLog:
    return commits_of(sparklog.open("/log", "rw", fs=CrashFS()))


BATCH = st.tuples(
    st.integers(-1, 6), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2), st.integers(0, 1)
)


def made(commits: CommitLog, drawn: tuple[int, int, int, int, int]) -> Chunk:
    sequence, count, partition, producer, epoch = drawn
    return sent(
        commits, sequence, count, partition=partition, producer=producer, epoch=epoch
    )  # fmt: skip


@pytest.mark.parametrize("home", [in_store, in_directory])
@settings(max_examples=25, deadline=None)
@given(groups=st.lists(st.lists(BATCH, max_size=8), max_size=5))
def test_together_is_as_one_after_the_other(
    home: Callable[[], CommitLog], groups: list[list[tuple[int, int, int, int, int]]]
) -> None:
    """Partition 2 isn't there."""
    together, alone = home(), home()
    for commits in (together, alone):
        create_topic(commits, "t", 2, {}, False)
    before = together.position
    for group in groups:
        found = spans(produce(together, [made(together, drawn) for drawn in group]))
        assert found == [
            span for drawn in group for span in spans(produce(alone, [made(alone, drawn)]))
        ]
    assert together.state.ends == alone.state.ends
    assert together.position - before <= len(groups)


def sequences(commits: CommitLog) -> list[list[Chunk]]:
    """Commits of two producers; the second has a retry, one that is refused, and two in a row."""
    return [
        [sent(commits, 0, 2), sent(commits, 0, 1, producer=8, partition=1)],
        [
            sent(commits, 2, 1), sent(commits, 3, 2), sent(commits, 9, 1, producer=8, partition=1),
            sent(commits, 0, 2), sent(commits, 1, 3, producer=8, partition=1),
        ],
    ]  # fmt: skip


def test_no_crash_takes_or_doubles_a_batch() -> None:
    """After each, what had no answer is sent again: what was committed has its old offsets."""
    acknowledged: list[list[Outcome]] = []

    def work(fs: CrashFS) -> None:
        log = sparklog.open("/log", "rw", fs=fs)
        for group in sequences(commits_of(log)):
            acknowledged.append(produce(commits_of(log), group))

    fs = CrashFS()
    with sparklog.open("/log", "rw", fs=fs) as log:
        log.create_topic("t", 2)
    wanted = None
    for crash in every_crash(work, fs=fs):
        with sparklog.open("/log", "rw", fs=crash.fs) as log:
            commits = commits_of(log)
            ends = log.offsets("t")
            assert (ends[0][1], ends[1][1]) in ((0, 0), (2, 1), (5, 4)), crash.how
            wanted = wanted or [spans(found) for found in acknowledged]
            if ends[0][1] == 5:  # a snapshot that recovery made knows the last batch of each
                last = [sent(commits, 3, 2), sent(commits, 1, 3, producer=8, partition=1)]
                assert spans(produce(commits, last)) == [(3, 5), (1, 4)], crash.how
            else:
                again = [spans(produce(commits, group)) for group in sequences(commits)]
                assert again == wanted, crash.how
            assert log.offsets("t") == {0: (0, 5), 1: (0, 4)}, crash.how
    assert wanted is not None


@pytest.mark.parametrize("seed", range(6))
def test_retries_find_what_a_store_took_without_an_answer(seed: int) -> None:
    store = FaultStore()
    create_topic(handle(store), "t", 2, {}, False)
    store.rng = random.Random(seed)
    store.faults = LOSSY
    clients: list[DisklessCommits] = [handle(store, timeout_ms=60) for _ in range(2)]
    waiting = {p: [(p, n) for n in range(12)] for p in (1, 2, 3)}
    tries = unknown = 0
    while any(waiting.values()):
        tries += 1
        assert tries < 4000
        commits = clients[tries % 2]
        group = [one for some in waiting.values() for one in some[:2]]
        batches = [sent(commits, n, 1, producer=p, partition=p % 2) for p, n in group]
        for (producer, n), outcome in zip(group, produce(commits, batches), strict=True):
            unknown += isinstance(outcome, CommitUnknownError)
            if isinstance(outcome, Produced) and waiting[producer][0][1] == n:
                waiting[producer].pop(0)
    store.faults = Faults()
    last = handle(store)
    last.catch_up()
    assert dict(last.state.ends) == {("t", 0): 12, ("t", 1): 24}


@pytest.mark.parametrize("error", [InvalidRequestError("no"), DataCorruptionError("no", path="p")])
def test_a_partition_that_fails_the_commit_takes_no_other_with_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody could tell before: its files are damaged, say."""
    commits = in_directory()
    create_topic(commits, "t", 3, {}, False)
    append = type(commits).append

    def failing(self: CommitLog, change: Change, *, expected: int) -> LedgerRecord:
        if any(chunk.partition == 1 for chunk in change.chunks):
            raise error
        return append(self, change, expected=expected)  # type: ignore[attr-defined,no-any-return]

    monkeypatch.setattr(type(commits), "append", failing)
    found = produce(commits, [sent(commits, 0, 1, partition=p % 3) for p in range(3)])
    assert spans(found) == [(0, 1), type(error), (0, 1)]
