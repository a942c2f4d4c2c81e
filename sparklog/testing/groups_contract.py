"""Contract tests of `sparklog.storage.group_store.Groups`. Each home has a subclass.

    class TestMine(GroupsContract):
        @pytest.fixture
        def new_groups(self) -> Callable[[], Groups]: ...  # another handle, as of another process
        @pytest.fixture
        def damage(self) -> Callable[[str], None]: ...     # damages the stored state of a group
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.storage import group_store
from sparklog.storage.group_store import Groups
from sparklog.storage.groups import (
    Committed,
    ExpiredOffset,
    Origin,
    Reader,
    committed_by_client,
    expired_offsets,
    touched,
    without_partitions,
)

Open = Callable[[], Groups]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def commit(
    groups: Groups, offsets: dict[TopicPartition, int], now_ms: int = 1, *, group: str = "g"
) -> None:
    """Commit like a plain reader."""
    groups.commit(group, offsets, now_ms=now_ms, host="h")


def offsets_of(groups: Groups, group: str = "g") -> dict[TopicPartition, int]:
    """Return the offsets that a group has committed."""
    return {key: at.offset for key, at in groups.positions(group).items()}


class GroupsContract:
    """Requirements of readers and retention on stored positions."""

    def test_nobody_is_known_at_first(self, new_groups: Open) -> None:
        groups = new_groups()
        assert offsets_of(groups) == {}
        assert groups.readers().groups == []
        assert not groups.delete("g")
        assert groups.group_of_planner("p") is None
        assert groups.are_waited_for

    def test_what_is_committed_is_there_for_everybody(self, new_groups: Open) -> None:
        one, two = new_groups(), new_groups()
        origins = {T0: Origin(2, 1)}
        one.commit("g", {T0: 5, T1: 7}, now_ms=4, host="h", origins=origins)
        for groups in (one, two, new_groups()):
            wanted = {T0: Committed(5, 4, Origin(2, 1)), T1: Committed(7, 4)}
            assert groups.positions("g") == wanted
            (reader,) = groups.readers().groups
            assert (reader.group, reader.kind, reader.host) == ("g", "group", "h")
            assert reader.offsets == groups.positions("g")

    def test_other_partitions_of_a_group_stay_and_a_commit_may_go_back(
        self, new_groups: Open
    ) -> None:
        one, two = new_groups(), new_groups()
        commit(one, {T0: 5})
        commit(two, {T1: 7})
        commit(one, {T0: 6})
        commit(two, {T1: 3})
        commit(one, {})
        assert offsets_of(one) == offsets_of(two) == {T0: 6, T1: 3}

    def test_handles_that_take_turns_overwrite_nothing(self, new_groups: Open) -> None:
        """A handle's own last write may be outdated."""
        one, two = new_groups(), new_groups()
        for n in range(6):
            commit((one, two)[n % 2], {(T0, T1)[n // 2 % 2]: n})
        assert offsets_of(one) == offsets_of(two) == {T0: 5, T1: 3}

    def test_members_that_commit_at_once_lose_nothing(self, new_groups: Open) -> None:
        keys = [TopicPartition("t", p) for p in range(8)]
        members = [new_groups() for _ in keys]

        def work(member: int) -> None:
            for offset in range(1, 11):
                commit(members[member], {keys[member]: offset})

        with ThreadPoolExecutor(len(keys)) as pool:
            list(pool.map(work, range(len(keys))))
        assert offsets_of(new_groups()) == dict.fromkeys(keys, 10)

    def test_groups_are_apart_whatever_they_are_called(self, new_groups: Open) -> None:
        names = ["..", "G", "a b", "a%2Fb", "a/b", "g", "~", "\u00fc" * 249]
        one, two = new_groups(), new_groups()
        for at, name in enumerate(names):
            commit(one, {T0: at}, group=name)
        assert [reader.group for reader in two.readers().groups] == names
        assert [offsets_of(two, name) for name in names] == [{T0: at} for at in range(len(names))]
        assert two.delete("a/b")
        names.remove("a/b")
        assert [reader.group for reader in one.readers().groups] == names

    @pytest.mark.parametrize("name", ["", " g", "g ", "a\nb", "\n", "x" * 250])
    def test_what_can_be_no_name_is_refused(self, new_groups: Open, name: str) -> None:
        groups = new_groups()
        with pytest.raises(InvalidRequestError):
            commit(groups, {T0: 1}, group=name)
        with pytest.raises(InvalidRequestError):
            groups.positions(name)
        with pytest.raises(InvalidRequestError):
            groups.delete(name)
        assert groups.readers().groups == []

    def test_a_deleted_group_is_unknown_and_may_come_again(self, new_groups: Open) -> None:
        one, two = new_groups(), new_groups()
        commit(one, {T0: 5, T1: 6})
        assert two.delete("g")
        assert not two.delete("g")
        assert offsets_of(one) == {}
        assert one.readers().groups == []
        commit(one, {T0: 7})
        assert offsets_of(two) == {T0: 7}

    def test_a_damaged_group_is_told_until_it_commits_again(
        self, new_groups: Open, damage: Callable[[str], None]
    ) -> None:
        commit(new_groups(), {T0: 5, T1: 6})
        commit(new_groups(), {T0: 1}, group="other")
        damage("g")
        groups = new_groups()
        with pytest.raises(DataCorruptionError):
            groups.positions("g")
        found = groups.readers()
        assert [reader.group for reader in found.groups] == ["other"]
        assert len(found.damaged) == 1
        commit(groups, {T0: 8})
        assert offsets_of(new_groups()) == {T0: 8}
        assert not new_groups().readers().damaged

    def test_a_damaged_group_may_be_deleted(
        self, new_groups: Open, damage: Callable[[str], None]
    ) -> None:
        commit(new_groups(), {T0: 5})
        damage("g")
        assert new_groups().delete("g")
        assert not new_groups().readers().damaged
        assert offsets_of(new_groups()) == {}

    def test_old_commits_expire(self, new_groups: Open) -> None:
        one = new_groups()
        commit(one, {T0: 5}, now_ms=500)
        commit(one, {T1: 6}, now_ms=501)
        commit(one, {T0: 1}, now_ms=100, group="old")
        wanted = [("g", "t", 0, 5, 500), ("old", "t", 0, 1, 100)]
        assert one.expire(now_ms=599, retention_ms=500) == []
        assert one.expire(now_ms=1000, retention_ms=500, dry_run=True) == wanted
        assert offsets_of(one) == {T0: 5, T1: 6}
        assert one.expire(now_ms=1000, retention_ms=500) == wanted
        assert one.expire(now_ms=1000, retention_ms=500) == []
        assert offsets_of(one) == offsets_of(new_groups()) == {T1: 6}
        assert [reader.group for reader in new_groups().readers().groups] == ["g"]
        commit(one, {T0: 7}, now_ms=1000, group="old")  # and it may come again
        assert offsets_of(new_groups(), "old") == {T0: 7}

    def test_a_commit_while_it_expires_stays(
        self, new_groups: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit(new_groups(), {T0: 5, T1: 6}, now_ms=100)
        meanwhile = [7]

        def late(*given: Any) -> list[ExpiredOffset]:
            expired = expired_offsets(*given)
            if meanwhile:
                commit(new_groups(), {T0: meanwhile.pop()}, now_ms=900)
            return expired

        monkeypatch.setattr(group_store, "expired_offsets", late)
        gone = new_groups().expire(now_ms=1000, retention_ms=500)
        assert gone == [("g", "t", 1, 6, 100)]
        assert offsets_of(new_groups()) == {T0: 7}

    def test_a_damaged_group_expires_by_its_age(
        self, new_groups: Open, damage: Callable[[str], None]
    ) -> None:
        commit(new_groups(), {T0: 5}, now_ms=100)
        commit(new_groups(), {T1: 1}, now_ms=1 << 60, group="other")
        damage("g")
        groups = new_groups()
        ((path, time_ms),) = groups.readers().damaged.items()
        assert groups.expire(now_ms=time_ms + 499, retention_ms=500) == []
        wanted = [(path, "", -1, -1, time_ms)]
        assert groups.expire(now_ms=time_ms + 500, retention_ms=500, dry_run=True) == wanted
        assert path in groups.readers().damaged
        assert groups.expire(now_ms=time_ms + 500, retention_ms=500) == wanted
        assert not new_groups().readers().damaged
        assert offsets_of(new_groups()) == {}
        assert offsets_of(new_groups(), "other") == {T1: 1}

    def test_a_query_and_its_planner(self, new_groups: Open) -> None:
        one, two = new_groups(), new_groups()
        query = Reader("q", "query", "h", "app", batch=3, run="r")
        one.commit_query(query, {T0: 5}, now_ms=1, planner="p")
        assert two.group_of_planner("p") == "q"
        assert two.group_of_planner("another") is None
        assert two.commit_planned("q", {T0: 9}, planner="p", now_ms=2)
        assert not two.commit_planned("unknown", {T0: 9}, planner="p", now_ms=2)
        (reader,) = one.readers().groups
        assert (reader.kind, reader.app, reader.batch, reader.run) == ("query", "app", 3, "r")
        assert reader.offsets == {T0: Committed(9, 2)}

    def test_a_query_has_the_name_of_its_last_run(self, new_groups: Open) -> None:
        """A restarted query may have another name or none. `commit_planned` keeps the name."""
        one, two = new_groups(), new_groups()
        names = []
        for batch, name in enumerate(("orders", "Auftr\u00e4ge\n\x1b[2J", "")):
            query = Reader("q", "query", "h", batch=batch, run=str(batch), name=name)
            one.commit_query(query, {T0: batch}, now_ms=1, planner=str(batch))
            assert two.commit_planned("q", {T0: batch + 1}, planner=str(batch), now_ms=2)
            (reader,) = new_groups().readers().groups
            names.append((reader.name, reader.offsets[T0].offset))
        assert names == [("orders", 1), ("Auftr\u00e4ge\n\x1b[2J", 2), ("", 3)]

    def test_a_client_gets_back_what_it_committed(self, new_groups: Open) -> None:
        one, two = new_groups(), new_groups()
        client = Reader("g", "group", "h", "client")
        first = {
            T0: Committed(5, 1, Origin(2, 1), "caf\u00e9", 2),
            T1: Committed(7, 1, None, "", 0),
        }
        assert one.change("g", lambda known: committed_by_client(known, client, first))
        assert not one.change("g", lambda known: committed_by_client(known, client, {}))
        assert two.positions("g") == first
        assert two.reader("g") == Reader("g", "group", "h", "client", offsets=first)
        commit(two, {T0: 6}, now_ms=2)  # a plain reader continues
        assert one.positions("g") == {T0: Committed(6, 2), T1: first[T1]}
        assert one.change("g", lambda known: touched(known, {T1}, 9))
        assert two.positions("g") == {T0: Committed(6, 2), T1: first[T1]._replace(time_ms=9)}
        assert not one.change("nobody", lambda known: touched(known, {T1}, 9))
        assert one.reader("nobody") is None
        assert [reader.group for reader in two.readers().groups] == ["g"]

    def test_a_client_deletes_single_offsets(self, new_groups: Open) -> None:
        one, two = new_groups(), new_groups()
        commit(one, {T0: 5, T1: 6})
        assert two.change("g", lambda known: without_partitions(known, {T0}))
        assert not two.change("g", lambda known: without_partitions(known, {T0}))
        assert offsets_of(one) == {T1: 6}
        assert one.change("g", lambda known: without_partitions(known, {T0, T1}))
        assert two.readers().groups == []
        assert two.reader("g") is None
        assert not one.change("g", lambda known: without_partitions(known, {T0}))
        commit(two, {T0: 1})
        assert offsets_of(one) == {T0: 1}

    def test_a_client_changes_nothing_of_a_query(self, new_groups: Open) -> None:
        groups = new_groups()
        query = Reader("q", "query", "h", "app", batch=3, run="r")
        groups.commit_query(query, {T0: 5}, now_ms=1, planner="p")
        before = groups.reader("q")
        with pytest.raises(InvalidRequestError, match="streaming query"):
            groups.change(
                "q",
                lambda known: committed_by_client(
                    known, Reader("q", "group"), {T0: Committed(9, 2)}
                ),
            )
        with pytest.raises(InvalidRequestError, match="streaming query"):
            groups.change("q", lambda known: without_partitions(known, {T0}))
        assert new_groups().reader("q") == before

    def test_what_a_decision_raises_leaves_nothing_behind(self, new_groups: Open) -> None:
        groups = new_groups()

        def refuse(known: Reader | None) -> Reader | None:
            raise InvalidRequestError("no")

        with pytest.raises(InvalidRequestError):
            groups.change("g", refuse)
        assert groups.reader("g") is None
        assert groups.readers().groups == []

    def test_a_change_heals_a_damaged_group(
        self, new_groups: Open, damage: Callable[[str], None]
    ) -> None:
        commit(new_groups(), {T0: 5, T1: 6})
        damage("g")
        groups, client = new_groups(), Reader("g", "group", "h")
        assert not groups.change("g", lambda known: without_partitions(known, {T0}))
        assert len(groups.readers().damaged) == 1
        assert groups.change(
            "g", lambda known: committed_by_client(known, client, {T0: Committed(8, 2)})
        )
        assert offsets_of(new_groups()) == {T0: 8}
        assert not new_groups().readers().damaged

    def test_a_planner_leaves_a_damaged_group_to_its_tasks(
        self, new_groups: Open, damage: Callable[[str], None]
    ) -> None:
        query = Reader("q", "query", "h", "app", batch=3, run="r")
        new_groups().commit_query(query, {T0: 5}, now_ms=1, planner="p")
        damage("q")
        assert not new_groups().commit_planned("q", {T0: 9}, planner="p", now_ms=2)
        assert len(new_groups().readers().damaged) == 1
