"""A tier becomes a log in a store: whole, once, and going on where the tier ends."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.common import TopicPartition
from sparklog.diskless.entries import decode
from sparklog.diskless.home_object import known_home
from sparklog.diskless.import_objects import BucketTarget, LogImport, NewLog
from sparklog.diskless.names import HOME, IMPORT, entry_name, state_name
from sparklog.diskless.state import DisklessState
from sparklog.diskless.tier_import import plan_tier_import
from sparklog.errors import (
    DataCorruptionError,
    FencedError,
    InvalidRequestError,
    UnknownTopicError,
)
from sparklog.log.topic_names import new_topic_id
from sparklog.tiered.encryption.envelope import open_data_key
from sparklog.tiered.object_store.store import Store, StoredObject
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.restoring import restore
from sparklog.tiered.target import open_store
from tests.diskless.logs import _chunk
from tests.diskless.transactions import ABORT, brought
from tests.logdir.partitions import batch, create, marker, transactional
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TIERED = {"remote.storage.enable": "true", "retention.bytes": "1000", "local.retention.ms": "9"}
ORIGIN = "the tier"


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Store]:
    """(the log, its bucket): t of two partitions, u of one."""
    path, held = tmp_path / "log", DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config={**SMALL, "max.message.bytes": 4321})
        log.create_topic("u", config=SMALL)
        fill(log, "t", 0, 30)
        fill(log, "t", 1, 17)
        fill(log, "u", 0, 9)
    for name in ("t-0", "t-1", "u-0"):
        config = {**SMALL, "max.message.bytes": 4321, "retention.ms": 5000}
        copy_partition(path / name, held, config=config | TIERED)
    source = open_store(f"memory://tier-{tmp_path.name}-{id(held)}")
    for name, data in held.objects.items():
        source.put(name, data)
    return path, source


@pytest.fixture
def target(tmp_path: Path) -> Store:
    return open_store(f"memory://new-{tmp_path.name}-{id(tmp_path)}")


def objects_of(source: Store) -> RemoteObjects:
    return RemoteObjects(lambda: source, BlockCache(64 << 20))


def place(target: Store) -> BucketTarget:
    return BucketTarget(store=target, threads=1, clock=lambda: 10**12)


def log_id_of(target: Store) -> str:
    return known_home(target).log_id


def new_home(target: Store, origin: str = ORIGIN) -> LogImport:
    return LogImport(place(target), origin)


def import_it(source: Store, target: Store, **given: Any) -> NewLog:
    home = new_home(target)
    assert not home.claim()
    new = plan_tier_import(objects_of(source), place(target), new_topic_id(), **given)
    home.run(new)
    return new


def folded(store: Store, log_id: str) -> DisklessState:
    """The state, of the entries alone."""
    state = DisklessState(log_id)
    while True:
        name = entry_name(log_id, state.next_number)
        try:
            raw = store.get(name)
        except FileNotFoundError:
            return state
        state.apply(decode(raw, number=state.next_number, path=name), path=name)


def log_bytes(store: Store, state: DisklessState, key: TopicPartition) -> bytes:
    parts = state.extents.get(key, ())
    return b"".join(store.get(one.object, one.start, one.start + one.size) for one in parts)


def test_all_of_it(made: tuple[Path, Store], target: Store) -> None:
    path, source = made
    import_it(source, target)
    log_id = log_id_of(target)
    state = folded(target, log_id)
    with sparklog.open(path) as log:
        for name in ("t", "u"):
            assert state.log.topics[name].id == log.topic(name).id
        assert state.log.topics["t"].config["max.message.bytes"] == "4321"
        assert state.log.topics["t"].config["retention.ms"] == "-1"
        assert state.log.topics["t"].config.keys().isdisjoint(TIERED)
    for key in (T0, T1, U0):
        last = state.extents[key][-1]
        assert state.log.ends[key] == last.end > 0
        assert state.epochs[key] == ((0, 0),)
        there = b"".join(p.read_bytes() for p in sorted((path / str(key)).glob("*.log")))
        held = log_bytes(target, state, key)
        assert held == there[: len(held)]
        assert len(held) > 0
        for extent in state.extents[key]:
            assert f"-{extent.segment}.log" in extent.object
    assert state.log.epoch >= 1 << 16
    assert state.log.idempotent == {T0, T1, U0}
    names = {one.name for one in target.list()}
    assert {one.name for one in source.list()} <= names
    assert IMPORT not in names
    assert {f"owners/{topic.id}" for topic in state.log.topics.values()} <= names
    assert state_name(log_id, state.number) in names


def test_one_topic_and_a_missing_partition(made: tuple[Path, Store], target: Store) -> None:
    _, source = made
    source.delete([one.name for one in source.list("t-0-")])
    new = import_it(source, target, topics=["t"])
    state = folded(target, new.log_id)
    assert sorted(state.log.topics) == ["t"]
    assert state.log.topics["t"].dirs == {0: 0, 1: 0}
    assert state.log.ends[T0] == 0 < state.log.ends[T1]


def test_log_start_within_a_segment(made: tuple[Path, Store], target: Store) -> None:
    _, source = made
    first, second = sorted(one.name for one in source.list("t-0-") if one.name.endswith(".log"))[:2]
    base = int(second.rpartition("/")[2][:20])
    source.put(f"{first.partition('/')[0]}/{base + 1:020d}.log-start", b"")
    state = folded(target, import_it(source, target).log_id)
    assert state.log.starts[T0] == base + 1
    assert state.extents[T0][0].base == base


def test_encrypted_segments_stay_so(made: tuple[Path, Store], target: Store) -> None:
    pytest.importorskip("cryptography")
    _, source = made
    from tests.diskless.encrypted import RING, encrypt

    plain = {one.name: source.get(one.name) for one in source.list() if one.name.endswith(".log")}
    encrypt(source)
    home = new_home(target)
    home.claim()
    found = RemoteObjects(lambda: source, BlockCache(64 << 20), RING)
    new = plan_tier_import(found, place(target), new_topic_id())
    home.run(new)
    state = folded(target, new.log_id)
    for extents in state.extents.values():
        for extent in extents:
            key = state.keys[extent.object]
            assert key.size == extent.size
            opened = open_data_key(RING, key.id, key.wrapped)
            stored = target.get(extent.object)
            got = opened.open_range(stored, 0, extent.size, extent.size, path="t")
            assert got == plain[extent.object]


# -- broken off, repeated, refused


class Cut(Exception):
    """The process ends here."""


class CutStore:
    """Passes requests that write on, until there were enough."""

    def __init__(self, store: Store, allowed: int) -> None:
        self._store, self.left = store, allowed
        self.url = store.url

    def __getattr__(self, name: str) -> Any:
        what = getattr(self._store, name)
        if name not in ("put", "create", "copy", "put_stream", "delete"):
            return what

        def counted(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Cut
            return what(*given, **named)

        return counted


def test_cut_anywhere_it_is_nothing_or_whole(made: tuple[Path, Store]) -> None:
    _, source = made
    cut = 0
    done = False
    while not done:
        target = open_store(f"memory://cut-{id(made)}-{cut}")
        try:
            import_it(source, CutStore(target, cut))
            done = True
        except Cut:
            pass
        names = {one.name for one in target.list()}
        if HOME in names:
            state = folded(target, log_id_of(target))
            assert state.log.ends[T0] > 0
        else:
            assert not any(name.endswith(".manifest") for name in names)
        if not done:
            _again(source, target, is_log=HOME in names)
        cut += 1
    assert cut > 10


def _again(source: Store, target: Store, *, is_log: bool) -> None:
    home = new_home(target)
    names = {one.name for one in target.list()}
    if is_log and IMPORT not in names:
        with pytest.raises(InvalidRequestError, match="a log already"):
            home.claim()
        return
    assert home.claim() == is_log
    log_id = log_id_of(target) if is_log else new_topic_id()
    new = plan_tier_import(objects_of(source), place(target), log_id)
    if is_log:
        home.complete(new)
    else:
        home.run(new)
    state = folded(target, log_id_of(target))
    names = {one.name for one in target.list()}
    assert {one.name for one in source.list()} <= names
    assert IMPORT not in names
    assert all(log_id in name for name in names if name.startswith(("ledger-", "state-")))
    assert state.log.ends[U0] > 0


def test_what_was_copied_is_not_copied_again(made: tuple[Path, Store], target: Store) -> None:
    _, source = made
    with pytest.raises(Cut):
        import_it(source, CutStore(target, 5))
    there = [one for one in target.list() if one.name.endswith(".log")]
    assert len(there) == 4
    import_it(source, target)
    now = {one.name: one.time_ms for one in target.list()}
    assert all(now[one.name] == one.time_ms for one in there)


def test_half_a_copy_is_copied_again(made: tuple[Path, Store], target: Store) -> None:
    _, source = made
    with pytest.raises(Cut):
        import_it(source, CutStore(target, 5))
    (name, *_) = [one.name for one in target.list() if one.name.endswith(".log")]
    target.put(name, b"half")
    import_it(source, target)
    assert target.get(name) == source.get(name)


def test_a_copy_with_missing_records_is_no_log(made: tuple[Path, Store], target: Store) -> None:
    _, source = made
    home = new_home(target)
    home.claim()
    new = plan_tier_import(objects_of(source), place(target), new_topic_id())
    first, *others = new.partitions
    for extents in (first.extents[:-1], first.extents[1:]):
        less = replace(new, partitions=[replace(first, extents=extents), *others])
        with pytest.raises(DataCorruptionError, match=r"records of .* are missing"):
            home.run(less)
    assert HOME not in {one.name for one in target.list()}


def test_two_at_once_make_one_log(made: tuple[Path, Store], target: Store) -> None:
    _, source = made
    one, other = new_home(target), new_home(target)
    assert not one.claim()
    assert not other.claim()
    plans = [plan_tier_import(objects_of(source), place(target), new_topic_id()) for _ in range(2)]
    one.run(plans[0])
    with pytest.raises(InvalidRequestError, match="another call"):
        other.run(plans[1])
    assert log_id_of(target) == plans[0].log_id
    assert folded(target, plans[0].log_id).log.ends[T0] > 0


def test_of_two_claims_at_once_one_holds(target: Store) -> None:
    """Both have seen an empty place."""
    one, other = new_home(target), new_home(target, "another tier")
    real = target.list

    def lists() -> list[StoredObject]:
        found = real()
        target.list = real  # type: ignore[method-assign]
        one.claim()
        return found

    target.list = lists  # type: ignore[method-assign, assignment]
    with pytest.raises(InvalidRequestError, match="is an incomplete import of the tier"):
        other.claim()


def damage_hole(source: Store) -> None:
    names = [one.name for one in source.list("t-0-") if one.name.endswith(".manifest")]
    source.delete(names[1:2])


def damage_size(source: Store) -> None:
    (name, *_) = [one.name for one in source.list("t-0-") if one.name.endswith(".log")]
    source.put(name, source.get(name)[:-1])


def damage_manifest(source: Store) -> None:
    (name, *_) = [one.name for one in source.list("t-0-") if one.name.endswith(".manifest")]
    source.put(name, source.get(name).replace(b'"base_offset": 0', b'"base_offset": 1'))


def swap_manifests(source: Store) -> None:
    first, second = [one.name for one in source.list("t-0-") if one.name.endswith(".manifest")][:2]
    raw = source.get(first)
    source.put(first, source.get(second))
    source.put(second, raw)


@pytest.mark.parametrize("damage", [damage_hole, damage_size, damage_manifest, swap_manifests])
def test_a_damaged_tier_is_refused(
    made: tuple[Path, Store], target: Store, damage: Callable[[Store], None]
) -> None:
    _, source = made
    damage(source)
    with pytest.raises(DataCorruptionError):
        import_it(source, target)
    assert [one.name for one in target.list()] == [IMPORT]


def test_refusals(made: tuple[Path, Store], target: Store) -> None:
    _, source = made
    with pytest.raises(InvalidRequestError, match="no archive"):
        plan_tier_import(objects_of(target), place(source), new_topic_id())
    with pytest.raises(UnknownTopicError, match="it has: t, u"):
        plan_tier_import(objects_of(source), place(target), new_topic_id(), topics=["v"])
    with pytest.raises(InvalidRequestError, match="other objects"):
        new_home(source).claim()
    new_home(target).claim()
    with pytest.raises(InvalidRequestError, match="is an incomplete import of the tier"):
        new_home(target, "another one").claim()


def test_a_manifest_that_is_deleted_meanwhile(
    made: tuple[Path, Store], target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once nobody deletes there, and what was deleted is back, another call goes on."""
    _, source = made
    get = source.get

    def gone(name: str, *given: Any, **named: Any) -> bytes:
        if name.endswith(".manifest"):
            raise FileNotFoundError(name)
        return get(name, *given, **named)

    monkeypatch.setattr(source, "get", gone)
    with pytest.raises(DataCorruptionError, match="stop the process that deletes objects there"):
        import_it(source, target)
    monkeypatch.setattr(source, "get", get)
    new = plan_tier_import(objects_of(source), place(target), new_topic_id())
    home = new_home(target)
    home.claim()
    home.run(new)
    assert folded(target, new.log_id).log.ends[T0] > 0


def test_open_transactions_are_left_out(tmp_path: Path, target: Store) -> None:
    path, held = tmp_path / "log", DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("u", config=SMALL)
        fill(log, "u", 0, 9)
    partition = create(path / "t-0")
    partition.append(batch("a"), 0)
    partition.append(transactional(batch("undecided", producer=(7, 0, 0))), 0)
    partition.roll()
    partition.append(batch("b"), 0)
    partition.close()
    (path / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {new_topic_id()}\n")
    copy_partition(path / "t-0", held)
    copy_partition(path / "u-0", held)
    source = open_store(f"memory://transactions-{tmp_path.name}")
    for name, data in held.objects.items():
        source.put(name, data)
    with pytest.raises(InvalidRequestError, match="Leave the topic out, or restore a range"):
        plan_tier_import(objects_of(source), place(target), new_topic_id())
    new = import_it(source, target, topics=["u"])
    assert folded(target, new.log_id).log.ends[U0] > 0
    restore(source.url, tmp_path / "before", topics=["t"], end={0: 1})
    with sparklog.open(tmp_path / "before", "rw") as log:
        assert log.read("t").read_all().num_rows == 1


def test_a_producer_that_has_an_epoch_only(tmp_path: Path) -> None:
    """Its transaction had no records. A producer of an older epoch is refused still."""
    home = brought(tmp_path, (batch("a"), marker(ABORT, producer_id=7, epoch=3)))
    (known,) = home.state.producers[T0].entries()
    assert (known.producer_id, known.producer_epoch) == (7, 3)
    assert (known.last_sequence, known.last_offset, known.offset_delta) == (-1, -1, 0)
    late = _chunk("t", 0, batch("b", producer=(7, 2, 0)))
    (found,) = home.commits.check_producers([replace(late, idempotent=True)])
    assert isinstance(found, FencedError)


def test_a_dry_run_leaves_nothing(target: Store) -> None:
    assert not LogImport(replace(place(target), dry_run=True), ORIGIN).claim()
    assert target.list() == []
