"""Rules that no seed shows soon: an order of steps on the real code, made by hand for each.

Each order is played twice: with the rule, where what is promised holds; and without, where it must
not, or the order shows nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest

from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.garbage import Garbage
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.home_object import check_new, check_not_missing, repairable_log_id
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.merge_plan import Merge
from sparklog.diskless.names import Level, entry_name
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.storage.group_store import Groups
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.object_store.store import StoredObject
from tests.diskless.logs import LOG_ID, T0, T1, Home

# --- replaced, covered ----------------------------------------------------------------------------


class Merging:
    """A log of one segment, which is replaced again and again while no manifest can be put."""

    def __init__(self) -> None:
        self.home = Home()
        self.home.topic()
        self.home.lead()
        self.home.commit("a", "b")
        self.home.merge_all()
        self.home.garbage.tidy(self.home.report())
        self.lost: list[str] = []
        self.successors: dict[str, str] = {}
        real = self.home.store.delete

        def delete(names: Sequence[str]) -> None:
            for name in names:
                real([name])
                if not self.is_covered():
                    self.lost.append(name)

        self.home.store.delete = delete  # type: ignore[method-assign]
        assert self.is_covered()

    def is_covered(self) -> bool:
        """Whether who has the manifests alone still finds all records, in logs that are there."""
        logs = [name for name in self.home.names() if name.endswith(".log")]
        return any(
            (each.segment.base, each.segment.end) == (0, 2)
            and any(each.segment.id in name for name in logs)
            for each in self.home.manifests()
        )

    def replace(self) -> None:
        """Set another segment in the place of this one; its manifest can't be put."""
        home, (source,) = self.home, self.home.state.extents[T0]
        topic_id = home.state.log.topics["t"].id
        config = home.state.log.topics["t"].parsed()
        merge = Merge(T0, topic_id, config, (source,), Level.SEGMENTS, "")
        away = StorageUnavailableError("the store is away", passing=True)
        with (
            mock.patch.object(home.merger, "put_manifest", side_effect=away),
            pytest.raises(StorageUnavailableError),
        ):
            home.merger.merge(merge, home.state)
        self.successors[source.segment] = home.state.extents[T0][0].segment
        now = home.clock()
        home.garbage.schedule_deletion(T0, topic_id, (source,), kind="replaced", now_ms=now)


def _rule(log: Merging) -> AbstractContextManager[object]:
    return nullcontext()


def _without_replaced(log: Merging) -> AbstractContextManager[object]:
    """What was replaced goes, whatever manifests there are."""
    return mock.patch.object(Garbage, "write_missing_manifests")


def _without_covered(log: Merging) -> AbstractContextManager[object]:
    """What was set in its place gets its manifest, if that wasn't replaced, too."""
    real = Garbage.write_missing_manifests

    def cover(self: Garbage, state: DisklessState, one: Any) -> None:
        successor = log.successors[one.gone[0].segment]
        state = state.copy()
        state.extents[T0] = tuple(e for e in state.extents[T0] if e.segment == successor)
        real(self, state, one)

    return mock.patch.object(Garbage, "write_missing_manifests", cover)


@pytest.mark.parametrize(
    ("times", "off", "loses"),
    [
        (1, _rule, False),
        (2, _rule, False),
        (1, _without_replaced, True),
        (1, _without_covered, False),
        (2, _without_covered, True),
    ],
)
def test_what_is_replaced_goes_after_the_manifest_of_what_covers_it_now(
    times: int, off: Callable[[Merging], AbstractContextManager[object]], loses: bool
) -> None:
    log = Merging()
    for _ in range(times):
        log.replace()
    with off(log):
        log.home.garbage.tidy(log.home.report())
    assert len([name for name in log.home.names("t-0") if name.endswith(".log")]) == 1
    assert bool(log.lost) == loses


# --- relist ---------------------------------------------------------------------------------------


def _looks_for_nothing_higher(real: Any) -> Callable[..., dict[int, str]]:
    def listed(self: GroupObjects, prefix: str) -> dict[int, str]:
        found: dict[int, str] = real(self, prefix)
        known = self._known.get(prefix)
        if known is None:
            return found
        return {at: name for at, name in found.items() if at <= known.number + 1}

    return listed


@pytest.mark.parametrize("has_rule", [True, False])
def test_a_member_that_slept_while_its_next_number_came_and_went(has_rule: bool) -> None:
    """Another member has taken numbers 1 to 3, and deleted 1, which is free again.

    Numbers 2 and 3 are kept: the newest position, and the one before it.
    """
    store = FaultStore()
    retry_policy = RetryPolicy(sleep=lambda ms: None)
    slow, quick = (Groups(GroupObjects(store, retry_policy=retry_policy)) for _ in range(2))
    slow.commit("g", {T0: 5}, now_ms=1, host="h")
    quick.commit("g", {T1: 10}, now_ms=2, host="h")
    quick.commit("g", {T1: 20}, now_ms=3, host="h")
    quick.commit("g", {T1: 30}, now_ms=4, host="h")
    real = GroupObjects.list_positions
    looks = real if has_rule else _looks_for_nothing_higher(real)
    with mock.patch.object(GroupObjects, "list_positions", looks):
        slow.commit("g", {T0: 6}, now_ms=5, host="h")
    found = Groups(GroupObjects(store, retry_policy=retry_policy)).positions("g")
    told = {key: found[key].offset for key in found}
    assert (told == {T0: 6, T1: 30}) == has_rule


# --- evidence -------------------------------------------------------------------------------------


class FirstCommit:
    """A process that finds no entry 0, while another process creates it and then what follows it.

    `follow` is the first process's; `before_listing` is what the second one does in between.
    """

    def __init__(self, before_listing: Callable[[Home], object]) -> None:
        self.home = Home()
        self.store = self.home.another().store
        list_real, done = self.store.list, list[object]()

        def listed(prefix: str = "", start_after: str = "") -> list[StoredObject]:
            if not done:
                done.append(before_listing(self.home))
            return list_real(prefix, start_after)

        self.store.list = listed  # type: ignore[method-assign]
        self.head = Head(EntryReader(self.store, LOG_ID), check_new=self.check)

    def check(self) -> None:
        check_new(self.store, LOG_ID)


def _unanswered(first: FirstCommit) -> AbstractContextManager[object]:
    """The request for the entry after the evidence has no answer."""
    away = StorageUnavailableError("no answer came", passing=True)
    return mock.patch.object(first.store, "get_many", lambda names: [away for _ in names])


def test_an_entry_that_is_created_between_a_get_and_a_listing_is_not_missing() -> None:
    first = FirstCommit(Home.topic)
    assert first.head.follow().number == -1
    assert first.head.follow().number == 0


def test_without_an_answer_evidence_does_not_make_an_entry_missing() -> None:
    """Seed 16 of the model showed it."""
    first = FirstCommit(Home.topic)
    real = first.check

    def check() -> None:
        with _unanswered(first):
            real()

    first.head = Head(EntryReader(first.store, LOG_ID), check_new=check)
    with pytest.raises(StorageUnavailableError, match="no answer came"):
        first.head.follow()
    assert first.head.follow().number == 0


def test_the_object_of_an_entry_is_no_evidence_for_it() -> None:
    """A listing may show it after its deletion, or before a get does."""
    store = FaultStore()
    name = entry_name(LOG_ID, 0)
    store.put(name, b"x")
    listed = store.list()
    store.delete([name])
    with mock.patch.object(
        store, "list", lambda prefix: [one for one in listed if one.name.startswith(prefix)]
    ):
        check_new(store, LOG_ID)
    store.put(entry_name(LOG_ID, 1), b"x")
    with pytest.raises(DataCorruptionError, match="was created after it"):
        check_new(store, LOG_ID)


@pytest.mark.parametrize("judge", [check_not_missing, repairable_log_id])
def test_without_an_answer_no_home_object_and_no_ledger_is_missing(
    judge: Callable[[FaultStore], object],
) -> None:
    store = FaultStore()
    store.put(entry_name(LOG_ID, 0), b"x")
    away = StorageUnavailableError("no answer came", passing=True)
    with (
        mock.patch.object(store, "get_many", lambda names: [away for _ in names]),
        pytest.raises(StorageUnavailableError),
    ):
        judge(store)
