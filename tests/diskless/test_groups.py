"""Groups of a log in a store: members that commit at once, answers that go astray, damage."""

import random

import pytest

from sparklog.common import TopicPartition
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.names import position_name
from sparklog.errors import (
    DataCorruptionError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.storage.group_store import Groups
from sparklog.storage.groups import Committed, Reader, reader_to_json
from sparklog.storage.stored_json import seal
from sparklog.testing.faultstore import Faults, FaultStore

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def groups_of(store: FaultStore) -> Groups:
    """The groups as another process sees them; no time passes."""
    clock = store.clock
    retry_policy = RetryPolicy(
        timeout_ms=100_000, sleep=lambda ms: clock.advance(int(ms) + 1), timer=lambda: clock(),
        draw=random.Random(7).random,
    )  # fmt: skip
    return Groups(GroupObjects(store, retry_policy=retry_policy))


def commit(groups: Groups, offsets: dict[TopicPartition, int], now_ms: int = 1) -> None:
    groups.commit("g", offsets, now_ms=now_ms, host="h")


def offsets(groups: Groups, group: str = "g") -> dict[TopicPartition, int]:
    return {key: at.offset for key, at in groups.positions(group).items()}


def test_a_member_that_goes_on_pays_a_put_a_listing_and_a_deletion(store: FaultStore) -> None:
    one = groups_of(store)
    commit(one, {T0: 4})
    commit(one, {T0: 5})
    before = store.counts.as_dict()
    commit(one, {T0: 6})
    after = store.counts.as_dict()
    assert {k: after[k] - before[k] for k in ("puts", "lists", "deletes", "gets")} == {
        "puts": 1, "lists": 1, "deletes": 1, "gets": 0,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_no_acknowledged_position_is_lost_by_answers_that_go_astray(seed: int) -> None:
    faults = Faults(reset=0.1, busy=0.1, lost=0.2, late=0.1, again=0.2, conflict=0.1)
    store = FaultStore(seed=seed, faults=faults)
    members = [groups_of(store.reopen(seed=seed * 9 + n, faults=faults)) for n in range(2)]
    acknowledged: dict[TopicPartition, int] = {}
    for n in range(30):
        key = T0 if n % 2 else T1
        try:
            commit(members[n % 2], {key: n})
        except StorageUnavailableError:
            continue
        acknowledged[key] = n
        known = offsets(groups_of(store.reopen()))
        assert all(known[k] >= at for k, at in acknowledged.items())


@pytest.mark.parametrize("raw", [b"", b"{", b'{"version": 1, "crc32c": 5, "reader": {}}'])
def test_a_damaged_position_is_told_until_its_reader_commits(
    store: FaultStore, raw: bytes
) -> None:
    one = groups_of(store)
    commit(one, {T0: 5})
    store.put(position_name("g", 0), raw)
    other = groups_of(store)
    with pytest.raises(DataCorruptionError, match="next commit replaces the object"):
        other.positions("g")
    assert list(other.readers().damaged) == [f"{store.url}/{position_name('g', 0)}"]
    commit(other, {T0: 8})
    assert offsets(other) == {T0: 8}
    assert not other.readers().damaged


def test_a_newer_form_is_left_alone(store: FaultStore) -> None:
    one = groups_of(store)
    commit(one, {T0: 5})
    name = position_name("g", 0)
    store.put(name, store.get(name).replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(UnsupportedVersionError):
        commit(groups_of(store), {T0: 8})


def test_any_group_has_names_that_a_file_can_have(store: FaultStore) -> None:
    for group in ("..", "a b", "a%2Fb", "a/b", "~", "\u00fc" * 249):
        groups_of(store).commit(group, {T0: 1}, now_ms=1, host="h")
    parts = {part for name in store.bucket.names() for part in name.split("/")}
    assert all(len(part) < 250 and part.strip(".") for part in parts)


def test_a_store_that_is_down_is_told(store: FaultStore) -> None:
    one = groups_of(store)
    store.down(10**9)
    with pytest.raises(StorageUnavailableError, match=r"can't be stored in .*readers/g"):
        commit(one, {T0: 5})


def test_one_that_a_newer_sparklog_wrote_stops_no_sweep(store: FaultStore) -> None:
    one = groups_of(store)
    commit(one, {T0: 5})
    name = position_name("g", 0)
    store.put(name, store.get(name).replace(b'"version": 1', b'"version": 9'))
    gone = one.expire(now_ms=store.clock() + 2000, retention_ms=1000)
    assert [each.partition for each in gone] == []
    assert store.bucket.names() == [name]


def test_a_listing_that_shows_what_is_gone_is_not_asked_for_ever(store: FaultStore) -> None:
    one = groups_of(store)
    commit(one, {T0: 5})
    listed = store.list
    kept = store.list("readers/")
    store.list = lambda prefix="": kept or listed(prefix)  # type: ignore[method-assign]
    store.delete([position_name("g", 0)])
    with pytest.raises(StorageUnavailableError, match="a GET does not find it"):
        groups_of(store).delete("g")


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "longer", "older", "another group"])
def test_a_group_continues_at_its_older_position(store: FaultStore, how: str) -> None:
    one = groups_of(store)
    one.commit("other", {T0: 50}, now_ms=1, host="h")
    for n in range(4):
        commit(one, {T0: n, T1: 10 + n})
    older, newest = store.bucket.names()[:2]
    assert [older, newest] == [position_name("g", 2), position_name("g", 3)]
    raw = store.get(newest)
    changed = {
        "empty": b"", "cut": raw[:30], "longer": raw + raw, "older": store.get(older),
        "another group": store.get(store.bucket.names()[2]),
    }  # fmt: skip
    store.delete([newest])
    if how != "missing":
        store.put(newest, changed[how])
    other = groups_of(store)
    assert offsets(other) == {T0: 2, T1: 12}
    found = other.readers()
    assert [reader.group for reader in found.groups] == ["g", "other"]
    assert list(found.damaged) == ([] if how == "missing" else [f"{store.url}/{newest}"])
    commit(other, {T0: 8})  # of one partition: the other keeps its position
    assert offsets(groups_of(store)) == {T0: 8, T1: 12}
    assert not groups_of(store).readers().damaged
    assert older in store.bucket.names()
    commit(other, {T0: 9})
    assert older not in store.bucket.names()


def test_a_copy_above_the_newest_position_is_not_taken(store: FaultStore) -> None:
    one = groups_of(store)
    commit(one, {T0: 5})
    store.put(position_name("g", 1), store.get(position_name("g", 0)))
    other = groups_of(store)
    assert offsets(other) == {T0: 5}
    commit(other, {T1: 6})
    assert offsets(groups_of(store)) == {T0: 5, T1: 6}


def test_a_position_that_an_older_version_wrote_has_no_number(store: FaultStore) -> None:
    content = {"attempt": "a", "reader": reader_to_json(Reader("g", "group", offsets={
        T0: Committed(5, 1)}))}  # fmt: skip
    store.put(position_name("g", 3), seal("reader", content))
    assert offsets(groups_of(store)) == {T0: 5}


def test_a_deleted_group_leaves_no_older_position(store: FaultStore) -> None:
    one = groups_of(store)
    commit(one, {T0: 5})
    commit(one, {T0: 6})
    assert one.delete("g")
    assert store.bucket.names() == [position_name("g", 2)]


def test_a_position_of_another_group_is_not_taken(store: FaultStore) -> None:
    one = groups_of(store)
    commit(one, {T0: 5})
    one.commit("other", {T0: 50}, now_ms=1, host="h")
    store.delete([position_name("g", 0)])
    store.put(position_name("g", 0), store.get(position_name("other", 0)))
    with pytest.raises(DataCorruptionError, match="belongs to group other"):
        groups_of(store).positions("g")
