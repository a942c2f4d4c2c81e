"""Commits while the store loses answers, does things late or twice, is down, and writers race."""

import errno
import json
import random
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sparklog.config import LogOptions
from sparklog.diskless import commit_log
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entries import Entry, NoOpRecord, decode
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.names import entry_name, new_staged_name
from sparklog.errors import (
    CommitUnknownError,
    DataCorruptionError,
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnsupportedVersionError,
)
from sparklog.format.batch import decode_one, encode_one
from sparklog.log.admin import create_topic, drop_topic, reset_writers
from sparklog.log.commit import CommitResult, Identity, commit, outcome
from sparklog.storage.commits import Change, Chunk, WriterResetError, change
from sparklog.storage.ledger_records import AppendRecord
from sparklog.testing.commits_contract import chunk
from sparklog.testing.faultstore import Faults, FaultStore

FAULTS = Faults(reset=0.1, busy=0.1, lost=0.15, late=0.1, again=0.1, conflict=0.1)


def handle(store: FaultStore, *, timeout_ms: float = 2000, **given: object) -> DisklessCommits:
    """A process's handle; no time passes but the store's own."""
    retry_policy = RetryPolicy(
        timeout_ms=timeout_ms, sleep=lambda ms: store.clock.advance(int(ms) + 1),
        timer=lambda: store.clock(), draw=random.Random(5).random,
    )  # fmt: skip
    head = Head(EntryReader(store, "log"))
    return DisklessCommits(
        store.url, head, LogOptions(), store.clock, retry_policy, **given  # type: ignore[arg-type]
    )


@pytest.fixture
def commits(store: FaultStore) -> DisklessCommits:
    one = handle(store)
    create_topic(one, "t", 1, {}, False)
    return one


def identity(batch: int, fingerprint: str = "f") -> Identity:
    return Identity(writer="w", batch=batch, fingerprint=fingerprint)


def decode_at(store: FaultStore, number: int) -> Entry:
    name = entry_name("log", number)
    return decode(store.get(name), number=number, path=name)


def spans(commits: DisklessCommits) -> list[tuple[int, int]]:
    """The offsets of all appends that are in the ledger, in its order."""
    end = commits.catch_up()
    records = [record for _, record in commits.records(0, end)]
    return [tuple(s) for r in records if isinstance(r, AppendRecord) for s in r.ends.values()]


@pytest.mark.parametrize("seed", range(30))
def test_what_was_told_holds_whatever_the_store_does(seed: int) -> None:
    """Three writers without an identity: each is told the truth, now and when all has landed."""
    quiet = FaultStore(seed=seed)
    create_topic(handle(quiet), "t", 1, {}, False)
    writers = [handle(quiet.reopen(seed=seed * 7 + n, faults=FAULTS)) for n in range(3)]
    done, failed, unknown = [], 0, []
    size = 1
    for n in range(30):
        size += 1  # each has its own number of records
        try:
            done.append((size, commit(writers[n % 3], [chunk(writers[n % 3], size)]).ends))
        except CommitUnknownError as error:
            unknown.append((size, error))
        except StorageUnavailableError:
            failed += 1
        quiet.clock.advance(500)
    late = handle(quiet.reopen())
    for size, error in unknown:
        found = outcome(late, (error.position, error.attempt))
        if found is not None:
            done.append((size, found.ends))
    quiet.clock.advance(10**9)
    quiet.reopen().list()  # what was on its way has landed
    fresh = handle(quiet.reopen())
    fresh.catch_up()
    told = sorted(ends["t"][0] for _, ends in done)
    assert spans(fresh) == told
    assert all(end - first == size for size, ends in done for first, end in [ends["t"][0]])
    assert len(done) > 10


@pytest.mark.parametrize("seed", range(30))
def test_a_micro_batch_is_in_once_whatever_the_store_does(seed: int) -> None:
    """A driver and its zombie write the same micro-batches, each until it is told."""
    quiet = FaultStore(seed=seed)
    create_topic(handle(quiet), "t", 1, {}, False)
    drivers = [handle(quiet.reopen(seed=seed * 7 + n, faults=FAULTS)) for n in range(2)]
    results: list[set[object]] = []
    for batch in range(12):
        told = set()
        for driver in drivers:
            while True:
                try:
                    result = commit(driver, [chunk(driver, batch + 1)], identity=identity(batch))
                except StorageUnavailableError:
                    continue
                told.add(result.ends["t"][0])
                break
        results.append(told)
    quiet.clock.advance(10**9)
    quiet.reopen().list()
    assert all(len(told) == 1 for told in results)
    assert spans(handle(quiet.reopen())) == [next(iter(told)) for told in results]


def test_threads_and_processes_that_race_lose_nothing(store: FaultStore) -> None:
    create_topic(handle(store), "t", 1, {}, False)
    handles = [handle(store.reopen(seed=n)) for n in range(5)]
    lock, done = threading.Lock(), []

    def work(number: int) -> None:
        mine = handles[number % 5]  # two threads share one
        for n in range(4):
            result = commit(mine, [chunk(mine, n + 1)])
            with lock:
                done.append(result.ends["t"][0])

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(work, range(10)))
    assert sorted(done) == spans(handle(store.reopen()))
    assert len(done) == 40


def test_who_loses_twice_stages_what_is_large(store: FaultStore, commits: DisklessCommits) -> None:
    other, third = handle(store.reopen()), handle(store.reopen())
    big = chunk(commits, 200)
    create = store.requests.create
    lost = iter([other, third])

    def beaten(name: str, data: bytes, crc: int) -> bool:
        first = next(lost, None)
        if first is not None:
            first.catch_up()
            commit(first, [chunk(first, 1)])
        return create(name, data, crc)

    store.requests.create = beaten  # type: ignore[method-assign]
    assert commit(commits, [big]).ends == {"t": {0: (2, 202)}}
    assert [name for name in store.bucket.names() if name.startswith("staged-")]
    extents = commits.known.extents[big.key]
    assert [extent.object.partition("-")[0] for extent in extents] == ["ledger"] * 2 + ["staged"]


def test_a_store_that_is_down_is_told_and_waited_for(
    store: FaultStore, commits: DisklessCommits
) -> None:
    patient = handle(store, timeout_ms=60_000)
    patient.catch_up()
    store.down(1000)
    assert commit(patient, [chunk(patient, 1)]).ends == {"t": {0: (0, 1)}}
    commits.catch_up()
    store.down(10**7)
    with pytest.raises(CommitUnknownError, match=r"Log\.outcome") as caught:
        commit(commits, [chunk(commits, 1)])
    assert caught.value.retriable
    assert caught.value.position == 2
    store.clock.advance(10**8)
    assert outcome(commits, caught.value) is None
    assert outcome(commits, caught.value) is None  # and so for ever
    assert isinstance(commits.head.entries.known([2])[0].record, NoOpRecord)
    assert commit(commits, [chunk(commits, 1)]).ends == {"t": {0: (1, 2)}}


def test_an_unknown_commit_that_was_made_is_found(
    store: FaultStore, commits: DisklessCommits
) -> None:
    create = store.requests.create

    def unanswered(name: str, data: bytes, crc: int) -> bool:
        create(name, data, crc)
        store.down(10**7)
        raise TimeoutError("no answer")

    store.requests.create = unanswered  # type: ignore[method-assign]
    with pytest.raises(CommitUnknownError) as caught:
        commit(commits, [chunk(commits, 3)])
    store.clock.advance(10**8)
    other = handle(store.reopen())
    found = outcome(other, (caught.value.position, caught.value.attempt))
    assert isinstance(found, CommitResult)
    assert found.ends == {"t": {0: (0, 3)}}
    with pytest.raises(InvalidRequestError, match="no commit has tried to create"):
        outcome(other, (99, "x"))
    assert outcome(other, (caught.value.position, "x")) is None


def test_refused_credentials_are_told_at_once(store: FaultStore, commits: DisklessCommits) -> None:
    other = store.reopen()
    reader = handle(other)  # may read, say, and was never let create anything
    reader.catch_up()
    other.refuse()
    began = store.clock()
    with pytest.raises(StorageUnavailableError, match="check key, secret and rights") as caught:
        commit(reader, [chunk(reader, 1)])
    assert not isinstance(caught.value, CommitUnknownError)
    assert store.clock() == began
    other.refuse(False)
    assert spans(handle(store.reopen())) == []


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize(
    "answer",
    [PermissionError("expired"), OSError(errno.ENOSPC, "full"), OSError(errno.EROFS, "read-only")],
)
def test_a_refused_entry_is_a_definite_failure(
    store: FaultStore, commits: DisklessCommits, answer: Exception, looks: bool
) -> None:
    """A client that has committed before loses its rights, with or without the right to read."""
    commit(commits, [chunk(commits, 1)])
    create = store.requests.create

    def refused(name: str, data: bytes, crc: int) -> bool:
        store.refuse(not looks)
        raise answer

    store.requests.create = refused  # type: ignore[method-assign]
    began = store.clock()
    with pytest.raises(StorageUnavailableError, match="nothing was committed: can't cre") as caught:
        commit(commits, [chunk(commits, 2)])
    assert not isinstance(caught.value, CommitUnknownError)
    assert caught.value.retriable
    assert store.clock() == began
    store.refuse(False)
    store.requests.create = create  # type: ignore[method-assign]
    assert commit(commits, [chunk(commits, 3)]).ends == {"t": {0: (1, 4)}}
    assert spans(handle(store.reopen())) == [(0, 1), (1, 4)]


def test_a_refusal_behind_a_lost_answer_decides_nothing(
    store: FaultStore, commits: DisklessCommits
) -> None:
    create = store.requests.create

    def lost(name: str, data: bytes, crc: int) -> bool:
        def refused(name: str, data: bytes, crc: int) -> bool:
            raise PermissionError("expired")

        store.requests.create = refused  # type: ignore[method-assign]
        raise TimeoutError("no answer")

    store.requests.create = lost  # type: ignore[method-assign]
    with pytest.raises(CommitUnknownError, match="the store refuses requests") as caught:
        commit(commits, [chunk(commits, 2)])
    store.requests.create = create  # type: ignore[method-assign]
    assert outcome(commits, caught.value) is None


@pytest.mark.parametrize("is_new", [False, True])
def test_a_client_that_sent_twice_and_was_refused_the_second_time(
    store: FaultStore, commits: DisklessCommits, is_new: bool
) -> None:
    """A connection broke, the client sent it again by itself, and the token had run out."""
    other = store.reopen()
    one = handle(other) if is_new else commits
    one.catch_up()
    mine = other if is_new else store
    mine.requests.sends_once = False  # as with gcsfs and adlfs
    create = mine.requests.create

    def twice(name: str, data: bytes, crc: int) -> bool:
        create(name, data, crc)
        mine.refuse(not is_new)  # of the new one's rights none may create, all may read
        raise PermissionError("the store refuses the credentials")

    mine.requests.create = twice  # type: ignore[method-assign]
    began = store.clock()
    if is_new:
        assert commit(one, [chunk(one, 2)]).ends == {"t": {0: (0, 2)}}
        return
    with pytest.raises(CommitUnknownError, match="check key, secret and rights") as caught:
        commit(one, [chunk(one, 2)])
    assert store.clock() == began
    found = outcome(handle(store.reopen()), caught.value)
    assert found is not None
    assert found.ends == {"t": {0: (0, 2)}}


def _newer(raw: bytes) -> bytes:
    """The entry as a newer sparklog would write it: whole, and of another version."""
    _, value, _ = decode_one(raw, path="x")
    fields = {**json.loads(value or b""), "v": 99}
    batch = encode_one(None, json.dumps(fields).encode(), timestamp=0)
    batch[:8] = raw[:8]
    return bytes(batch)


@pytest.mark.parametrize("giving_up", [False, True])
@pytest.mark.parametrize("how", ["damaged", "newer"])
def test_an_answer_that_is_lost_and_an_entry_that_cant_be_read(
    store: FaultStore, commits: DisklessCommits, how: str, giving_up: bool
) -> None:
    """It may be ours, so nobody may say that nothing was committed; once mended it is found."""
    name, sent = entry_name("log", 1), list[bytes]()

    def unanswered(at: str, data: bytes, crc: int) -> bool:
        sent.append(data)
        if not giving_up or data != sent[0]:  # it lands at once, or while a no-op is tried
            spoilt = sent[0][:60] if how == "damaged" else _newer(sent[0])
            store.bucket.objects[at] = spoilt, store.clock()
        raise TimeoutError("no answer")

    store.requests.create = unanswered  # type: ignore[method-assign]
    with pytest.raises(CommitUnknownError, match="can't be read") as caught:
        commit(commits, [chunk(commits, 3)])
    assert name in str(caught.value)
    assert caught.value.position == 1
    assert isinstance(caught.value.__cause__, DataCorruptionError | UnsupportedVersionError)
    other = handle(store.reopen())
    with pytest.raises((DataCorruptionError, UnsupportedVersionError)):
        outcome(other, caught.value)
    store.bucket.objects[name] = sent[0], store.clock()
    found = outcome(other, caught.value)
    assert found is not None
    assert found.ends == {"t": {0: (0, 3)}}


def test_who_is_interrupted_is_told_how_to_find_out(
    store: FaultStore, commits: DisklessCommits
) -> None:
    create = store.requests.create

    def interrupted(name: str, data: bytes, crc: int) -> bool:
        create(name, data, crc)
        raise KeyboardInterrupt

    store.requests.create = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt) as caught:
        commit(commits, [chunk(commits, 1)], identity=identity(0))
    found = re.search(r"Log\.outcome\(\((1), '(.*)'\)\)", caught.value.__notes__[0])
    assert found is not None
    store.requests.create = create  # type: ignore[method-assign]
    told = outcome(handle(store.reopen()), (int(found[1]), found[2]))
    assert told is not None and told.ends == {"t": {0: (0, 1)}}
    assert commit(commits, [chunk(commits, 1)], identity=identity(0)).replayed


def test_a_commit_that_never_will_be_is_made_again(
    store: FaultStore, commits: DisklessCommits
) -> None:
    create = store.requests.create

    def deaf(name: str, data: bytes, crc: int) -> bool:
        if b'"append"' in data:
            raise TimeoutError("no answer")
        return create(name, data, crc)

    store.requests.create = deaf  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailableError, match=r"nothing was committed, .*commit again"):
        commit(commits, [chunk(commits, 2)])
    store.requests.create = create  # type: ignore[method-assign]
    assert commit(commits, [chunk(commits, 2)]).ends == {"t": {0: (0, 2)}}
    assert spans(handle(store.reopen())) == [(0, 2)]


def test_a_closed_log_is_opened_again(store: FaultStore, commits: DisklessCommits) -> None:
    commits.close()
    with pytest.raises(SparklogError, match="this log is closed; open it again"):
        commit(commits, [chunk(commits, 1)])
    again = handle(store)
    again.catch_up()
    assert commit(again, [chunk(again, 1)]).ends == {"t": {0: (0, 1)}}


def test_what_was_planned_before_a_reset_is_refused_after_it(store: FaultStore) -> None:
    zombie, admin = handle(store), handle(store.reopen())
    create_topic(zombie, "t", 1, {}, False)
    for batch in range(3):
        commit(zombie, [chunk(zombie, 1)], identity=identity(batch))
    reset_writers(admin, "w", 0)
    with pytest.raises(WriterResetError, match="was reset") as caught:
        commit(zombie, [chunk(zombie, 1)], identity=identity(3))
    assert caught.value.retriable
    assert not commit(zombie, [chunk(zombie, 1)], identity=identity(1)).replayed
    assert zombie.state.writers["w"].batch == 1


def test_an_old_micro_batch_is_found_by_its_writers_commits_alone(
    store: FaultStore, commits: DisklessCommits
) -> None:
    for batch in range(40):
        for writer in ("w", "x", "y"):
            commit(
                commits, [chunk(commits, 1)],
                identity=Identity(writer=writer, batch=batch, fingerprint="f"),
            )  # fmt: skip
    commits.catch_up()
    before = store.counts.as_dict()
    assert commit(commits, [chunk(commits, 1)], identity=identity(30)).replayed
    after = store.counts.as_dict()
    assert after["gets"] - before["gets"] == 10 + 1  # 39 ... 30, and whether there is news
    assert after["puts"] == before["puts"]
    reset_writers(commits, "w", 35)
    assert commits.known.commits["w"] == 1 + 3 * 35
    assert not commit(commits, [chunk(commits, 1)], identity=identity(36)).replayed


def test_rows_for_a_topic_that_was_made_again_are_refused(
    store: FaultStore, commits: DisklessCommits
) -> None:
    old = replace(chunk(commits, 1), topic_id=commits.state.topics["t"].id)
    other = handle(store.reopen())
    other.catch_up()
    drop_topic(other, "t")
    create_topic(other, "t", 1, {}, False)
    with pytest.raises(TopicReplacedError, match="created again"):
        commit(commits, [old])
    with pytest.raises(TopicReplacedError):
        commit(other, [old])
    new = replace(old, topic_id=other.state.topics["t"].id)
    assert commit(commits, [new]).ends == {"t": {0: (0, 1)}}


@pytest.mark.parametrize("how", ["other history", "garbage", "cut", "newer"])
def test_an_entry_that_does_not_follow_stops_everybody(
    store: FaultStore, commits: DisklessCommits, how: str
) -> None:
    commit(commits, [chunk(commits, 1)])
    name = entry_name("log", 1)
    raw = store.get(name)
    copied = FaultStore()
    create_topic(handle(copied), "t", 1, {}, False)
    bad = {
        "other history": copied.get(entry_name("log", 0))[:7] + b"\1" + copied.get(
            entry_name("log", 0))[8:],
        "garbage": b"x" * 100, "cut": raw[:50],
        "newer": raw.replace(b'"v":1', b'"v":9'),
    }[how]  # fmt: skip
    store.put(name, bad)
    for work in (lambda c: c.catch_up(), lambda c: commit(c, [chunk(c, 1)])):
        with pytest.raises((DataCorruptionError, InvalidRequestError)) as caught:
            work(handle(store.reopen()))
        assert name in str(caught.value)


def test_chunks_that_are_no_whole_batches_are_refused(commits: DisklessCommits) -> None:
    good = chunk(commits, 3)
    assert isinstance(good.data, bytes)
    size = len(good.data) // 3
    above_0 = good.data[size : 2 * size], good.data[2 * size :]  # offsets 1 and 2
    bad: list[Callable[[Chunk], Chunk]] = [
        lambda c: replace(c, records=2),
        lambda c: replace(c, data=bytes(good.data or b"")[:-1], size_bytes=c.size_bytes - 1),
        lambda c: replace(c, size_bytes=c.size_bytes + 1),
        lambda c: replace(c, data=b"", size_bytes=0, records=0),
        lambda c: replace(c, data=b"\1" * 200, size_bytes=200),
        lambda c: replace(c, data=b"".join(above_0), size_bytes=c.size_bytes // 3 * 2),
    ]
    for spoilt in bad:
        with pytest.raises(InvalidRequestError, match="nothing was committed"):
            commit(commits, [spoilt(good)])
    assert commits.catch_up() == 1


def test_a_log_whose_objects_are_gone_takes_no_more_commits(store: FaultStore) -> None:
    there = [True]
    one = handle(store, is_in_place=lambda: there[0])
    create_topic(one, "t", 1, {}, False)
    there[0] = False
    assert commit(one, [chunk(one, 1)]).ends  # it was looked at just before
    store.clock.advance(30_000)
    with pytest.raises(LogReplacedError, match="no longer contains this log"):
        commit(one, [chunk(one, 1)])
    with pytest.raises(LogReplacedError):
        create_topic(one, "u", 1, {}, False)


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_gap_in_the_ledger_is_not_its_end(
    store: FaultStore, commits: DisklessCommits, number: int
) -> None:
    """A lifecycle rule took an entry: nobody may put another one in its place."""
    for _ in range(7):
        commit(commits, [chunk(commits, 1)])
    name = entry_name("log", number)
    store.delete([name])
    before = store.bucket.names()
    for _ in range(2):
        with pytest.raises(DataCorruptionError, match="lifecycle rule") as caught:
            handle(store.reopen()).catch_up()
        assert name in str(caught.value)
    assert store.bucket.names() == before


# --- a log that is rolled back under an open writer ---------------------------------------------


def rolled_back(store: FaultStore, commits: DisklessCommits) -> int:
    """Remove the two newest entries behind the writer's back; return the number of the last."""
    for _ in range(4):
        commit(commits, [chunk(commits, 1)])
    last = commits.known.number
    store.delete([entry_name("log", last), entry_name("log", last - 1)])
    return last


def test_a_writer_notices_a_roll_back_before_it_acknowledges(
    store: FaultStore, commits: DisklessCommits
) -> None:
    last = rolled_back(store, commits)
    store.clock.advance(commit_log.HISTORY_MS)
    for _ in range(2):
        with pytest.raises(LogReplacedError, match="is missing, but this process has read"):
            commit(commits, [chunk(commits, 1)])
    assert entry_name("log", last + 1) not in store.bucket.names()
    commits.close()
    again = handle(store)
    again.catch_up()
    assert commit(again, [chunk(again, 1)]).ends == {"t": {0: (2, 3)}}


def test_a_writer_that_commits_all_the_time_notices_a_roll_back(
    store: FaultStore, commits: DisklessCommits
) -> None:
    """The newest entry is then always its own, and was created after the roll-back."""
    entries = []
    for _ in range(15):
        store.clock.advance(commit_log.HISTORY_MS // 5)
        commit(commits, [chunk(commits, 1)])
        entries.append(entry_name("log", commits.known.number))
    store.delete(entries[3:])
    with pytest.raises(LogReplacedError, match="is missing, but this process has read"):
        for _ in range(6):
            store.clock.advance(commit_log.HISTORY_MS // 5)
            commit(commits, [chunk(commits, 1)])


def test_a_writer_looks_for_its_newest_entries_once_in_five_seconds(
    store: FaultStore, commits: DisklessCommits
) -> None:
    gets = []
    for _ in range(2):
        store.clock.advance(commit_log.HISTORY_MS)
        before = store.counts.as_dict()
        for _ in range(3):
            commit(commits, [chunk(commits, 1)])
        after = store.counts.as_dict()
        gets.append(after["gets"] - before["gets"])
        assert after["puts"] - before["puts"] == 3
    assert gets == [1, 2]  # at first one entry is both


@pytest.mark.parametrize("meets", ["its own number", "an older number"])
def test_a_writer_that_meets_another_history_is_told(
    store: FaultStore, commits: DisklessCommits, meets: str
) -> None:
    """After the roll-back another process commits, up to the number that comes next here."""
    last = rolled_back(store, commits)
    other = handle(store)
    other.catch_up()
    while other.known.number < last + (meets == "its own number"):
        commit(other, [chunk(other, 1)])
    if meets == "an older number":
        store.clock.advance(commit_log.HISTORY_MS)
    with pytest.raises(LogReplacedError, match="was replaced by another entry"):
        commit(commits, [chunk(commits, 1)])
    commit(other, [chunk(other, 1)])


def test_an_empty_log_has_no_newest_entry_to_look_for(store: FaultStore) -> None:
    one = handle(store)
    store.clock.advance(commit_log.HISTORY_MS)
    create_topic(one, "t", 1, {}, False)


def test_an_outcome_holds_for_ever(store: FaultStore, commits: DisklessCommits) -> None:
    """A number that was free is taken, so that a late request finds it taken."""
    number = commits.position
    assert outcome(commits, (number, "mine")) is None
    assert isinstance(decode_at(store, number).record, NoOpRecord)
    commit(commits, [chunk(commits, 1)])
    assert outcome(commits, (number + 1, "mine")) is None  # another's
    assert outcome(commits, (number + 1, decode_at(store, number + 1).id)) is not None


def test_a_refusal_on_an_old_state_is_decided_again(store: FaultStore) -> None:
    """A topic that this handle has not heard of yet is no reason to refuse rows for it."""
    behind, ahead = handle(store), handle(store.reopen())
    behind.catch_up()
    create_topic(ahead, "t", 1, {}, False)
    made = change(behind, lambda _: Change(record=AppendRecord(ends={}), chunks=[chunk(ahead, 1)]))
    assert [*made.ends.values()] == [(0, 1)]  # type: ignore[union-attr]


def test_what_was_staged_before_a_reset_is_refused_after_it(
    store: FaultStore, commits: DisklessCommits
) -> None:
    """Though the driver that commits it knows of the reset: its plan did not."""
    for batch in range(2):
        commit(commits, [chunk(commits, 1)], identity=identity(batch))
    plain = chunk(commits, 1)
    name = new_staged_name("log", commits.known.number, "task")
    store.put(name, plain.data)  # type: ignore[arg-type]
    staged = replace(plain, data=None, path=name)
    reset_writers(commits, "w", 0)
    with pytest.raises(WriterResetError, match="was reset"):
        commit(commits, [staged], identity=identity(1))


def test_a_chain_of_commits_that_leads_to_anothers_is_damage(commits: DisklessCommits) -> None:
    for writer in ("w", "x", "w"):
        batch = commits.state.writers[writer].batch + 1 if writer in commits.state.writers else 0
        at = Identity(writer=writer, batch=batch, fingerprint="f")
        commit(commits, [chunk(commits, 1)], identity=at)
    commits.head.state.commits["w"] = commits.head.state.commits["x"]
    with pytest.raises(DataCorruptionError, match="next commit of writer w refers to this"):
        commit(commits, [chunk(commits, 1)], identity=identity(0))


def test_giving_up_finds_the_entry_that_came_first(store: FaultStore) -> None:
    """The first request takes effect when its no-op is on its way, so it is committed."""
    one = handle(store, timeout_ms=0)
    create_topic(one, "t", 1, {}, False)
    create, late = store.requests.create, list[tuple[str, bytes, int]]()

    def slow(name: str, data: bytes, crc: int) -> bool:
        if not late:
            late.append((name, data, crc))
            raise TimeoutError("no answer")
        store.requests.create = create  # type: ignore[method-assign]
        assert create(*late[0])
        return create(name, data, crc)

    store.requests.create = slow  # type: ignore[method-assign]
    assert commit(one, [chunk(one, 2)]).ends == {"t": {0: (0, 2)}}
    assert spans(handle(store.reopen())) == [(0, 2)]
