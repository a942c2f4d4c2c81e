"""A fork of a log in a store: what was committed up to the point, nothing behind it, on its own."""

import base64
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.diskless.entries import ImportRecord, MergeRecord, ProducerBatch
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.home_object import known_home, place_home
from sparklog.diskless.import_objects import MadeLog
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.names import HOME
from sparklog.diskless.state import DisklessState
from sparklog.diskless.view import DisklessView
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
)
from sparklog.service.verification.store_verifier import verify_store
from sparklog.storage.ledger_records import CommitRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.target import open_store
from tests.diskless.bucket_log import (
    LOG_ID,
    RING,
    START_MS,
    T0,
    T1,
    BucketLog,
    Part,
    chunk,
    expected,
    read_all,
    value,
)
from tests.log.forks import fork


class Made:
    """A log, and forks of it."""

    def __init__(self, url: str, tmp_path: Path, keyring: Keyring | None = None) -> None:
        self.url, self.keyring = url, keyring
        self.log = BucketLog(url, keyring=keyring)
        self.log.store.delete([HOME])
        place_home(self.log.store, LOG_ID, lambda: START_MS)
        self._ring = ""
        if keyring is not None:
            path = tmp_path / "ring"
            path.write_text(f"one {base64.b64encode(bytes(range(32))).decode()}\n")
            self._ring = str(path)
        self.number = 0

    @property
    def new_url(self) -> str:
        return f"{self.url}-fork-{self.number}"

    def fork(self, **given: Any) -> MadeLog:
        self.number += 1
        options = RemoteOptions(remote_keyring=self._ring)
        made: MadeLog = fork(self.url, self.new_url, options=options, threads=2, **given)
        return made

    @property
    def target(self) -> Store:
        return open_store(self.new_url)

    def state(self) -> DisklessState:
        return Head(EntryReader(self.target, known_home(self.target).log_id)).follow()

    def view(self) -> DisklessView:
        store = self.target
        objects = ExtentObjects(RemoteObjects(lambda: store, BlockCache(64 << 20), self.keyring))

        def head() -> Head:
            found = Head(EntryReader(store, known_home(store).log_id))
            found.follow()
            return found

        return DisklessView(store.url, objects, head)


@pytest.fixture(params=[None, RING], ids=["plain", "encrypted"])
def made(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> Made:
    if request.param is not None:
        pytest.importorskip("cryptography")
    return Made(store_url, tmp_path, request.param)


def write_all_ways(log: BucketLog) -> list[int]:
    """Commit to t-0 inline, staged and by a table; returns the ends after each."""
    ends = []
    for how in ("inline", "staged", "table", "inline", "inline", "staged"):
        parts = [Part(T0, 10), Part(T1, 5)] if how != "table" else [Part(T0, 6), Part(T0, 7)]
        log.commit(parts, how=how, ms=0)
        ends.append(log.end())
    return ends


def test_any_commit_is_a_point(made: Made) -> None:
    """Whatever lies how, before merges and after: the fork has what was there at the point."""
    ends = write_all_ways(made.log)
    for merged in (False, True):
        if merged:
            made.log.merge(T0, 1, 4)
        for end in ends:
            done = made.fork(offsets={"t": {0: end}})
            assert done.offsets["t"][0] == (0, end)
            assert read_all(made.view()) == expected(0, end)
            assert len(read_all(made.view(), T1)) == done.offsets["t"][1][1]
            assert verify_store(made.new_url).ok
    state = made.state()
    assert state.log.epoch == made.log.state.log.epoch + 1
    assert state.log.topics["t"].id != made.log.state.log.topics["t"].id
    assert state.epochs[T0] == ((3, 0),)
    assert all(state.log_id in name or "/" in name for name in state.live_objects())


def test_a_point_within_a_segment(made: Made) -> None:
    """The segment is cut: nothing of the new log says more, not even for who has manifests only."""
    made.log.commit([Part(T0, 10)])
    made.log.commit([Part(T0, 10)], how="staged")
    made.log.commit([Part(T0, 10)])
    made.log.merge(T0, 0, 2)
    done = made.fork(offsets={"t": {0: 25}})
    assert done.offsets["t"][0] == (0, 20)
    assert read_all(made.view()) == expected(0, 20)
    (extent,) = made.state().extents[T0]
    assert extent.max_timestamp == START_MS + 19
    names = [one.name for one in made.target.list("t-0-")]
    assert len(names) == 2
    if made.keyring is None:
        assert verify_store(made.new_url).ok
    (manifest,) = [name for name in names if name.endswith(".manifest")]
    assert f".{20:020d}.{START_MS + 19}.manifest" in manifest
    assert made.view().of_partition(*T0, lambda found: found.metadata())[0].end in (20, None)
    if made.keyring is not None:
        assert value(3) not in b"".join(made.target.get(name) for name in names)


def test_the_fork_goes_on_alone(made: Made) -> None:
    """The old log is retained, merged, deleted below it: the fork has its own objects."""
    ends = write_all_ways(made.log)
    made.fork(offsets={"t": {0: ends[-1]}})
    for one in made.log.store.list():
        made.log.store.delete([one.name])
    assert read_all(made.view()) == expected(0, ends[-1])


def commit_of(log: BucketLog, writer: str, batch: int, rows: int = 4, ms: int = 0) -> None:
    """A writer's micro-batch in t-0, chained to the one before it."""
    first = log.end()
    record = CommitRecord(
        time_ms=ms or START_MS, epoch=3, writer=writer, batch=batch, fingerprint=f"f{batch}",
        ends={T0: OffsetRange(first, first + rows)},
    )  # fmt: skip
    data = chunk(first, rows)
    from sparklog.diskless.extents import Extent

    extent = Extent(first, first + rows, "", 0, len(data), START_MS + first + rows - 1, 3, -1)
    before = log.state.commits.get(writer, -1)
    log.add(record, data, extents=((T0, extent),), before=before)


def test_a_producer_that_has_an_epoch_only_is_known_to_the_fork(
    store_url: str, tmp_path: Path
) -> None:
    made = Made(store_url, tmp_path)
    bare = ProducerBatch(7, 3, -1, 0, -1, START_MS)
    record = ImportRecord(time_ms=START_MS, epoch=0, epochs={T0: ((0, 0),)})
    made.log.add(record, producers={T0: (bare,)})
    commit_of(made.log, "q", 0)
    made.fork(writer="q", batch=0)
    (known,) = made.state().producers[T0].entries()
    assert (known.producer_id, known.producer_epoch, known.last_offset) == (7, 3, -1)


# -- what can't be


def test_compacted_behind_the_point(store_url: str, tmp_path: Path) -> None:
    made = Made(store_url, tmp_path)
    for batch in range(4):
        commit_of(made.log, "q", batch)
    made.log.merge(T0, 0, 3)
    (extent,) = made.log.state.extents[T0]
    lost = extent._replace(end=16)
    made.log.add(
        MergeRecord(
            time_ms=START_MS, term=1, topic="t", topic_id=made.log.state.log.topics["t"].id,
            partition=0, sources=(extent.place,), gaps=True,
        ),
        extents=((T0, lost),),
    )  # fmt: skip
    made.fork(writer="q", batch=1)  # no record is missing below the point
    assert read_all(made.view()) == expected(0, 8)
    assert T0 in made.state().gaps
    with_hole = chunk(0, 4) + b""
    made.log.store.put(extent.object, with_hole)
    made.log.add(
        MergeRecord(
            time_ms=START_MS, term=1, topic="t", topic_id=made.log.state.log.topics["t"].id,
            partition=0, sources=(lost.place,), gaps=True,
        ),
        extents=((T0, lost._replace(size=len(with_hole), crc=-1)),),
    )  # fmt: skip
    with pytest.raises(InvalidRequestError, match="was compacted"):
        made.fork(writer="q", batch=1)


def test_an_entry_whose_data_are_gone_is_no_fork(store_url: str, tmp_path: Path) -> None:
    made = Made(store_url, tmp_path)
    commit_of(made.log, "q", 0)
    (extent,) = made.log.state.extents[T0]
    raw = made.log.store.get(extent.object)
    made.log.store.put(extent.object, raw[: extent.start])
    with pytest.raises(DataCorruptionError, match="ends before the data"):
        made.fork(writer="q", batch=0)
    assert HOME not in {one.name for one in made.target.list()}
    made.log.store.put(extent.object, raw)
    made.number -= 1
    made.fork(writer="q", batch=0)  # goes on
    assert read_all(made.view()) == expected(0, 4)


def test_places(store_url: str, tmp_path: Path) -> None:
    made = Made(store_url, tmp_path)
    commit_of(made.log, "q", 0)
    for bad in (store_url, f"{store_url}/below"):
        with pytest.raises(InvalidRequestError, match="contains the other"):
            fork(store_url, bad, writer="q", batch=0)
    made.fork(writer="q", batch=0)
    with pytest.raises(InvalidRequestError, match="a log already"):
        fork(store_url, made.new_url, writer="q", batch=0)
    dry = fork(store_url, f"{store_url}-dry", writer="q", batch=0, dry_run=True)
    assert dry.offsets == {"t": {0: (0, 4), 1: (0, 0)}}
    assert open_store(f"{store_url}-dry").list() == []
    with pytest.raises(InvalidRequestError, match="contains no log"):
        fork(f"{store_url}-none", f"{store_url}-dry", writer="q", batch=0)
    with sparklog.open(f"{store_url}-none", mode="rw") as log:  # a log is made there
        log.create_topic("t")
    fork(f"{store_url}-none", f"{store_url}-dry", time_ms=1 << 50)
    assert list(sparklog.open(f"{store_url}-dry").topics()) == ["t"]
