"""Erasure in log dirs and their tier, from the outside: bytes of every file and object, readers."""

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, StorageUnavailableError, UnknownTopicError
from sparklog.fs import LOCAL
from sparklog.logdir.erasures_file import LOCK_NAME, unfinished_erasures
from sparklog.logdir.segment_files import segment_bases
from sparklog.service import ErasureReport, Service, Severity, erase, verify
from sparklog.service.leadership import Leadership
from sparklog.service.verification.tier_verifier import verify_tier
from sparklog.storage.erasure_report import sha256_of
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.topic_owners import LOOK_MS
from tests import depth
from tests.tiered.buckets import DictStore, archive_log, objects
from tests.waiting import until

URL = "dict://bucket"
RING = Keyring({"one": bytes(range(32))}, "one")
ALICE = b"alice@example.com"
TIERED = {
    "internal.segment.bytes": 1200,
    "index.interval.bytes": 100,
    "compression.type": "uncompressed",
    "remote.storage.enable": True,
    "local.retention.bytes": 2500,
    "file.delete.delay.ms": 0,
}
LOCAL_ONLY = {k: v for k, v in TIERED.items() if "remote" not in k and "local." not in k}


class LameStore(DictStore):
    """Answers `allowed` requests that change something, then none of them."""

    allowed = 1 << 30
    away = False

    def _change(self) -> None:
        self.allowed -= 1
        if self.allowed < 0:
            raise StorageUnavailableError("away", path=URL)

    def put(self, name: str, data: bytes) -> None:
        self._change()
        super().put(name, data)

    def delete(self, names: Any) -> None:
        self._change()
        super().delete(names)

    def get(self, name: str, start: int = 0, end: int | None = None, **given: int) -> bytes:
        if self.away:
            raise StorageUnavailableError("away", path=URL)
        return super().get(name, start, end)


class SlowStore(DictStore):
    """Holds up a put while it is `slow`, until it may `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.begun, self.go_on = Event(), Event(), Event()

    def put(self, name: str, data: bytes) -> None:
        if self.slow.is_set() and name.endswith(".log"):
            self.begun.set()
            assert self.go_on.wait(240)
        super().put(name, data)


def service(path: Path, clock: ManualClock, store: DictStore, **given: Any) -> Service:
    return Service(
        path, clock=clock, opening=lambda url, options: store,
        options={"remote.log.manager.copier.thread.pool.size": "1"}, **given,
    )  # fmt: skip


def erased(
    path: Path, clock: ManualClock, store: DictStore | None = None, **given: Any
) -> ErasureReport:
    return erase(
        path, "t", [ALICE], clock=clock, opening=lambda url, options: store, **given
    )  # fmt: skip


def write(log: sparklog.Log, clock: ManualClock, count: int = 48) -> None:
    """Batches of three keys; Alice's every other time, once alone."""
    for n in range(count):
        keys = [ALICE] if n == 5 else [b"bob", ALICE, b"carol"] if n % 2 else [b"bob", b"carol"]
        values = [b"secret-of-alice-%d" % n if k == ALICE else b"%s-%d" % (k, n) for k in keys]
        log.append("t", pa.table({"key": keys, "value": values}))
        clock.advance(1000)


def tiered(
    path: Path, clock: ManualClock, store: DictStore, config: dict[str, Any] = TIERED, **given: Any
) -> None:
    """A log with segments in the bucket alone, in both tiers and here alone."""
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        write(log, clock)
        for _ in range(3):
            service(path, clock, store, remote=URL, **given).run_once()
            clock.advance(3_600_000)
        if config is TIERED:
            assert log.offsets("t")[0][0] == 0
            assert segment_bases(LOCAL, str(path / "t-0"))[0] > 0


def rows(log: sparklog.Log) -> list[tuple[int, bytes, bytes, Any]]:
    found = log.read("t").read_all()
    names = ("offset", "key", "value", "timestamp")
    return list(zip(*(found.column(name).to_pylist() for name in names), strict=True))


def everything(path: Path, store: DictStore) -> bytes:
    files = [Path(where) / name for where, _, names in os.walk(path) for name in names]
    return b"".join([*(file.read_bytes() for file in files), *store.objects.values()])


@pytest.fixture(params=[None, RING], ids=["plain", "encrypted"])
def ring(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_nothing_is_left_in_both_tiers(tmp_path: Path, clock: ManualClock, ring: Any) -> None:
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store, keyring=ring)
    with archive_of(store, ring) as log:
        before = rows(log)
    assert b"secret-of-alice" in everything(path, store)
    rehearsed = erased(path, clock, store, keyring=ring, dry_run=True)
    report = erased(path, clock, store, keyring=ring)
    assert report.complete, (report.pending, report.errors, report.partitions)
    assert report.records == rehearsed.records == 24
    assert {one.place for one in report.partitions[0].erased_from} == {"local", "remote"}
    copies = [(o.base, o.end) for o in rehearsed.partitions[0].erased_from if o.place == "remote"]
    assert copies == [
        (o.base, o.end) for o in report.partitions[0].erased_from if o.place == "remote"
    ]
    left = everything(path, store)
    assert b"secret-of-alice" not in left
    assert ALICE not in left
    with archive_of(store, ring) as log:
        found = rows(log)
        assert found == [row for row in before if row[1] != ALICE][: len(found)]
        assert len(found) > len(before) / 2
    assert not [f for f in verify(path).findings if f.severity is not Severity.WARNING]
    if ring is None:
        assert not verify_tier(path, store=store, deep=True).findings
    again = erased(path, clock, store, keyring=ring)
    assert again.complete
    assert again.records == 0
    assert not again.partitions[0].erased_from


def archive_of(store: DictStore, ring: Any) -> sparklog.Log:
    found = objects(store)
    found.keys = ring
    return archive_log(URL, found, refresh_ms=0)


def test_readers_of_both_tiers_go_on(tmp_path: Path, clock: ManualClock) -> None:
    """One that was in a copy that goes finds its offsets in the new one."""
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store)
    with archive_of(store, None) as log:
        before = rows(log)
        batches = iter(log.read("t", columns=["offset", "key"]))
        first = next(batches).column("offset").to_pylist()
        report = erased(path, clock, store)
        log.topics()  # asks the bucket for news
        rest = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        gone = {o for r in report.partitions[0].offsets.ranges for o in range(*r)}
        assert set(first + rest) >= {row[0] for row in before} - gone
        assert rows(log) == [row for row in before if row[0] not in gone]


def test_a_copy_of_as_many_bytes_as_before(tmp_path: Path, clock: ManualClock) -> None:
    """A batch of zstd may be as long without a record; cut between the tiers, nobody knows it."""
    path, store, alice = tmp_path / "log", DictStore(), b"alice"
    config = TIERED | {
        "compression.type": "zstd", "internal.segment.bytes": 150, "local.retention.bytes": -2,
    }  # fmt: skip
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        for value in (
            b"hbcgaaddcebagcfedhdhcaaahfgcfhhfhdcgcca", b"fhffabeeedaggcbecagfcebcbfbfehbbghdcebg",
            b"baegfgdfdddgbedfeafghcaccghacdgcfefcbed", b"gdfcdcchgfcbccahaggafbefachceaadbbcheec",
        ):  # fmt: skip
            keys = [b"bob", b"bob", b"bob", alice]
            log.append("t", pa.table({"key": keys, "value": [value] * 4}))
        log.append("t", pa.table({"key": [b"carol"], "value": [b"active"]}))
        service(path, clock, store, remote=URL).run_once()
        sizes = [len(data) for name, data in store.objects.items() if name.endswith(".log")]
        assert len(sizes) == 4
        with archive_of(store, None) as copy:
            assert alice in copy.read("t").read_all().column("key").to_pylist()
    away = LameStore()
    away.objects, away.times, away.allowed, away.away = store.objects, store.times, 0, True
    cut = erase(path, "t", [alice], clock=clock, opening=lambda url, options: away)
    assert (cut.records, cut.complete) == (4, False)
    report = erase(path, "t", [alice], clock=clock, opening=lambda url, options: store)
    assert report.complete, report
    with archive_of(store, None) as copy:
        assert set(copy.read("t").read_all().column("key").to_pylist()) == {b"bob"}


def test_a_compacted_topic(tmp_path: Path, clock: ManualClock) -> None:
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store, TIERED | {"cleanup.policy": "compact"})
    assert erased(path, clock, store).complete
    assert ALICE not in everything(path, store)
    service(path, clock, store).run_once()
    with sparklog.open(path) as log:
        assert {row[1] for row in rows(log)} == {b"bob", b"carol"}


@pytest.mark.deep
def test_the_store_is_away(tmp_path: Path, clock: ManualClock) -> None:
    """What is local is gone, what is remote is told; the same call finishes, at whatever request.

    So does the next one where a request that changes something was the last.
    """
    number = -1
    while True:
        number += depth.by_depth(small=3, ci=1, all=1)
        path, store = tmp_path / f"log{number}", LameStore()
        tiered(path, clock, store)
        with archive_of(store, None) as log:
            before = [row for row in rows(log) if row[1] != ALICE]
        store.allowed = number
        report = erased(path, clock, store)
        local = b"".join(file.read_bytes() for file in path.glob("t-0/*"))
        assert ALICE not in local
        store.allowed = 1 << 30
        with archive_of(store, None) as log:
            assert [row for row in rows(log) if row[1] != ALICE] == before
        if report.complete:
            break
        assert "run the same erasure again" in " ".join(report.pending)
        if number % 2:  # a service comes first
            service(path, clock, store).run_once()
        again = erased(path, clock, store)
        assert again.complete, (again.pending, again.errors)
        assert ALICE not in everything(path, store)
    assert number > 5


def test_no_answer_at_all(tmp_path: Path, clock: ManualClock) -> None:
    path, store = tmp_path / "log", LameStore()
    tiered(path, clock, store)
    store.away = True
    report = erased(path, clock, store)
    assert not report.complete
    assert "remote storage" in report.pending[0]
    store.away = False
    assert erased(path, clock, store).complete
    assert ALICE not in everything(path, store)


def test_a_service_hands_over_and_leads_again(tmp_path: Path, clock: ManualClock) -> None:
    """Two erasures at once ask for it, one after the other has it; each names whom it waits for."""
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store)
    awaited: list[str] = []
    other, both = "another erasure of this log", Event()

    def waiting(who: str) -> None:
        """The one that has the service hand over goes on when the other one waits for it."""
        awaited.append(who)
        if who == other:
            both.set()
        assert both.wait(240)

    with service(path, clock, store) as leader, ThreadPoolExecutor(2) as pool:
        leader.tick()
        asked = [
            pool.submit(
                erase, path, "t", [key], clock=clock, opening=lambda url, options: store,
                waiting=waiting,
            )
            for key in (ALICE, b"carol")
        ]  # fmt: skip
        for report in (each.result(240) for each in asked):
            assert report.complete, (report.pending, report.errors, report.partitions)
            assert report.records == (24 if report.keys_sha256 == sha256_of([ALICE]) else 47)
        until(lambda: leads(leader))
        mine = leader.erase("t", [ALICE])  # by itself: nobody is waited for
        assert (mine.complete, mine.records) == (True, 0), (mine.pending, mine.errors)
    assert awaited.count(other) == 1
    services = [who for who in awaited if "hands the lease over at the end of its step" in who]
    assert len(services) == len(awaited) - 1
    assert 1 <= len(services) <= 2  # it may lead again before the second one comes
    left = everything(path, store)
    assert ALICE not in left
    assert b"carol" not in left
    with archive_of(store, None) as log:
        assert {row[1] for row in rows(log)} == {b"bob"}


def test_a_service_knows_its_copies_again(tmp_path: Path, clock: ManualClock) -> None:
    """The erasure was at work in the bucket for this very log: nobody else's."""
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store)
    leader = service(path, clock, store)
    leader._leadership.open()  # as if it was started, but for its threads
    assert not leader.run_once().errors
    leader._leadership.lease.release()  # type: ignore[union-attr]
    assert erased(path, clock, store).complete
    clock.advance(LOOK_MS)
    assert not leader.run_once().errors
    assert erased(path, clock, store, wait_ms=0).pending  # it leads
    leader.close()


def leads(leader: Service) -> bool:
    upkeep = leader._leadership.leading()
    return upkeep is not None


def test_a_service_that_hands_over_to_nobody(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one. What is local goes; what it keeps is told, and goes once it has ended."""
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store)
    awaited: list[str] = []
    with monkeypatch.context() as older:
        older.setattr(Leadership, "lend", lambda self, lends: None)
        leader = service(path, clock, store)
        leader._leadership._lends = None  # type: ignore[assignment]
        leader.start()
    with leader:
        leader.tick()
        report = erased(path, clock, store, wait_ms=300, waiting=awaited.append)
        assert not report.complete
        assert "did not hand the lease over" in report.pending[0]
        assert "older sparklog" in awaited[0]
        assert ALICE not in b"".join(file.read_bytes() for file in path.glob("t-0/*"))
    mine = erased(path, clock, store)  # once it is stopped
    assert mine.complete, (mine.pending, mine.errors)
    assert ALICE not in everything(path, store)


def test_two_erasures_take_turns(tmp_path: Path, clock: ManualClock) -> None:
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store)
    with LOCAL.open_lock(f"{path}/{LOCK_NAME}") as other:
        assert other.try_lock(0, 1, exclusive=True)
        report = erased(path, clock, store, wait_ms=0)
        assert not report.complete
        assert "wait for its end, then run this erasure again" in report.errors[0]
    assert erased(path, clock, store).complete
    assert ALICE not in everything(path, store)


def test_a_step_that_is_under_way_is_waited_for(tmp_path: Path, clock: ManualClock) -> None:
    """A copy of old bytes that ends after the erasure looked would bring them back."""
    path, store = tmp_path / "log", SlowStore()
    tiered(path, clock, store, TIERED | {"local.retention.bytes": -2})
    with sparklog.open(path, "rw", clock=clock) as log:
        write(log, clock)
    clock.advance(3_600_000)
    store.slow.set()
    with service(path, clock, store) as leader, ThreadPoolExecutor(1) as pool:
        clock.advance(3_600_000)
        assert store.begun.wait(240)  # it copies a segment of Alice's
        asked = pool.submit(erased, path, clock, store)
        assert not done_within(asked, 500)
        store.slow.clear()
        store.go_on.set()
        report = asked.result(240)
        assert report.complete, (report.pending, report.errors, report.partitions)
        assert leader.last_report is not None
    assert ALICE not in everything(path, store)


def done_within(what: "Future[Any]", ms: int) -> bool:
    return bool(wait([what], ms / 1000).done)


def test_a_round_of_the_service_copies_rewritten_segments_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    path, store = tmp_path / "log", DictStore()
    tiered(path, clock, store, TIERED | {"local.retention.bytes": -2})
    leader = service(path, clock, store)
    with leader:
        leader.tick()
        assert not erased(path, clock, store, wait_ms=0).complete
    assert ALICE in b"".join(store.objects.values())
    service(path, clock, store).run_once()
    assert ALICE not in everything(path, store)


def test_leftovers(tmp_path: Path, clock: ManualClock) -> None:
    """What waits for its delay goes; what isn't the log's to delete is told, by name."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", config=LOCAL_ONLY | {"file.delete.delay.ms": 10**9})
        write(log, clock)
        log.delete_records("t", {0: 60})
    Service(path, clock=clock).retain()
    assert list(path.glob("t-0/*.deleted"))
    segment = sorted(path.glob("t-0/*.log"))[-1]
    os.link(segment, tmp_path / "backup")
    (path / "sparklog-chunk-w-1-2-0123").write_bytes(segment.read_bytes())
    (path / "sparklog-quarantine-20260101T000000Z-t-0-x.log").write_bytes(b"?")
    (path / "t-0.0123456789abcdef0123456789abcdef-stray").mkdir()
    (path / "sparklog-quarantine-20260101T000000Z-not-t-0-x.log").write_bytes(b"?")
    (path / "t-x-0.0123456789abcdef0123456789abcdef-delete").mkdir()  # other topics', these two
    report = erased(path, clock)
    assert not list(path.glob("t-0/*.deleted"))
    assert report.partitions[0].removed
    said = "\n".join(report.pending)
    for what in ("1 other name", "staged and not committed", "quarantine", "deleted topic"):
        assert what in said
    assert len(report.pending) == 4
    assert not report.complete


class ByValue:
    """A predicate of one's own."""

    columns = ("value", "offset")

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        values = records.column("value").cast(pa.string())
        odd = pc.equal(pc.bit_wise_and(records.column("offset"), 1), 1)
        return pc.and_(pc.match_substring(values, "bob"), odd)


def test_a_predicate_of_ones_own(tmp_path: Path, clock: ManualClock) -> None:
    with sparklog.open(tmp_path, "rw", clock=clock) as log:
        log.create_topic("t", config=LOCAL_ONLY)
        write(log, clock)
        before = rows(log)
        report = erase(tmp_path, "t", predicate=ByValue(), clock=clock)
        assert report.complete, report.partitions
        kept = [row for row in before if not (row[1] == b"bob" and row[0] % 2)]
        assert rows(log) == kept
        assert report.records == len(before) - len(kept) > 0
        log.append("t", pa.table({"key": [b"bob"], "value": [b"new"]}))  # the writer goes on


class Fails(ByValue):
    """Chooses all of partition 0 and fails at the next; reads meanwhile."""

    def __init__(self, reader: sparklog.Log) -> None:
        self._reader = reader

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        assert b"two" in self._reader.read("t").read_all().column("value").to_pylist()
        if b"two" in records.column("value").to_pylist():
            raise ZeroDivisionError
        return pa.array([True] * len(records))


def test_readers_hear_of_an_erasure_that_failed(tmp_path: Path, clock: ManualClock) -> None:
    with sparklog.open(tmp_path, "rw", clock=clock) as log:
        log.create_topic("t", 2, LOCAL_ONLY)
        for p, value in ((0, "one"), (0, "one"), (1, "two")):
            log.append("t", pa.table({"value": [value * (300 if p == 0 else 1)]}), p)
    with sparklog.open(tmp_path) as reader:
        assert reader.read("t").read_all().num_rows == 3
        with pytest.raises(ZeroDivisionError):
            erase(tmp_path, "t", clock=clock, predicate=Fails(reader))
        assert reader.read("t").read_all().column("value").to_pylist() == [b"two"]
    (begun,) = unfinished_erasures(LOCAL, str(tmp_path))
    assert "ZeroDivisionError" in begun.left[0]


def test_bounds(tmp_path: Path, clock: ManualClock) -> None:
    with sparklog.open(tmp_path, "rw", clock=clock) as log:
        log.create_topic("t", partitions=2, config=LOCAL_ONLY)
        for p in (0, 1):
            for _ in range(4):
                rows_of = pa.table(
                    {"key": pa.array([ALICE, None], pa.binary()), "value": [b"v"] * 2}
                )
                log.append("t", rows_of, partition=p)
                clock.advance(1000)
        began = int(log.read("t", [0]).read_all()["timestamp"][0].as_py().timestamp() * 1000)
        one = erase(tmp_path, "t", [ALICE], partitions=[1], before=3, clock=clock)
        assert [p.partition for p in one.partitions] == [1]
        assert one.partitions[0].offsets.ranges == [(0, 1), (2, 3)]
        two = erase(tmp_path, "t", [ALICE], before_ms=began + 1000, clock=clock)
        assert [p.offsets.ranges for p in two.partitions] == [[(0, 1)], []]
        three = erase(tmp_path, "t", null_key=True, clock=clock)
        assert [p.records for p in three.partitions] == [4, 4]


def test_a_log_dir_that_is_away(tmp_path: Path, clock: ManualClock) -> None:
    """It may hold what a move couldn't let go of, or what somebody staged."""
    path = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("other", 2)
        log.create_topic("t", 1, LOCAL_ONLY)
        for p in range(2):
            log.append("other", pa.table({"value": ["x"]}), p)
        write(log, clock, 8)
        assert log.topic("t").dirs[0] == str(tmp_path / "one" / "t-0")
    (tmp_path / "two").rename(tmp_path / "away")
    (tmp_path / "two").mkdir()
    report = erased(Path(path), clock)
    assert report.records == 4
    assert not report.complete
    assert [str(tmp_path / "two") in left for left in report.pending] == [True]
    (tmp_path / "two").rmdir()
    (tmp_path / "away").rename(tmp_path / "two")
    assert erased(Path(path), clock).complete


def test_what_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    with sparklog.open(tmp_path, "rw", clock=clock) as log:
        log.create_topic("t", config=LOCAL_ONLY)
    for given, said in (
        ({"keys": []}, "no key to erase was given"),
        ({"keys": ["alice"]}, "collection of bytes"),
        ({"keys": [ALICE], "predicate": ByValue()}, "either keys"),
        ({"keys": [ALICE], "partitions": [7]}, "no partitions"),
        ({"keys": [ALICE], "partitions": []}, "partitions is empty"),
    ):
        with pytest.raises(InvalidRequestError, match=said):
            erase(tmp_path, "t", clock=clock, **given)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicError):
        erase(tmp_path, "nope", [ALICE], clock=clock)
    with pytest.raises(InvalidRequestError, match="belongs to sparklog"):
        erase(tmp_path, "__remote_log_metadata", [ALICE], clock=clock)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_keys_of_every_kind(tmp_path: Path, clock: ManualClock, codec: str) -> None:
    """Prefixes of one another, the empty one, 1 MB, bytes that are no text; 10,000."""
    huge = bytes(range(256)) * 4096
    kept = [b"ali", b"alice@example.com.au", b"Alice@example.com", b"\xffo"]
    gone = [ALICE, b"", huge, b"\xff", b"a\nb", b"\x00"]
    many = [b"customer-%d" % n for n in range(10_000)]
    with sparklog.open(tmp_path, "rw", clock=clock) as log:
        config = {"compression.type": codec, "max.message.bytes": 8 << 20}
        log.create_topic("t", config=config | {"cleanup.policy": "compact"})
        keys = [*kept, *gone, *many, b"customer-10000"]
        texts = [None if n % 3 == 0 else b"v%d" % n for n in range(len(keys))]
        values = pa.array(texts, pa.binary())  # a third of them tombstones
        log.append("t", pa.table({"key": pa.array(keys, pa.binary()), "value": values}))
        report = erase(tmp_path, "t", [*gone, *many], clock=clock)
        assert report.complete, (report.pending, report.errors, report.partitions)
        assert report.records == len(gone) + len(many)
        assert [row[1] for row in rows(log)] == [*kept, b"customer-10000"]
    left = b"".join(file.read_bytes() for file in tmp_path.glob("t-0/*"))
    assert huge[:1000] not in left
    assert b"customer-77" not in left
