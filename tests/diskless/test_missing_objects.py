"""Objects that a state names and the store lacks are found by few requests, without their bytes."""

import pytest

from sparklog.diskless.home_object import create_home
from sparklog.diskless.missing_objects import REQUESTS_MAX, unreadable_extents
from tests.diskless.logs import LOG_ID, RING, T0, T1, Home, commit_by_table


@pytest.fixture(params=[None, RING], ids=["plain", "encrypted"])
def home(request: pytest.FixtureRequest) -> Home:
    """Merged [0, 3) of t-0, staged [3, 5), inline [5, 6), in an extent table [6, 10)."""
    home = Home(keyring=request.param)
    create_home(home.store, LOG_ID, home.clock)
    home.topic(partitions=2)
    home.lead()
    home.commit("a", "b")
    home.stage({0: ["c"], 1: ["x", "y"]})
    home.merge_all()
    home.stage({0: ["d", "e"], 1: ["z"]})
    home.commit("f")
    commit_by_table(home, {0: ["p", "q", "r", "s"]})
    return home


def found(home: Home) -> list[tuple[object, int, str]]:
    store = home.store.reopen()
    return [(e.key, e.extent.base, e.why) for e in unreadable_extents(store, home.state)]


def test_nothing_is_missing_from_a_whole_log(home: Home) -> None:
    assert found(home) == []


@pytest.mark.parametrize("number", range(4), ids=["merged", "staged", "inline", "table"])
def test_a_missing_object_names_its_partition_and_offsets(home: Home, number: int) -> None:
    extent = home.state.extents[T0][number]
    del home.bucket.objects[extent.object]
    assert (T0, extent.base, "it is missing") in found(home)


@pytest.mark.parametrize("number", range(3), ids=["merged", "staged", "inline"])
def test_an_object_that_is_too_short(home: Home, number: int) -> None:
    extent = home.state.extents[T0][number]
    raw, when = home.bucket.objects[extent.object]
    size = 0 if home.keyring else extent.start + extent.size - 1
    home.bucket.objects[extent.object] = raw[:size], when
    assert (T0, extent.base) in [each[:2] for each in found(home)]


def test_a_missing_object_of_an_extent_table(home: Home) -> None:
    table = home.state.extents[T0][3]
    (piece,) = [name for name in home.names("staged-") if "/task1-" in name]
    del home.bucket.objects[piece]
    assert found(home) == [(T0, table.base, "it is missing")]


def test_a_missing_object_concerns_every_partition_in_it(home: Home) -> None:
    extent = home.state.extents[T0][1]
    assert home.state.extents[T1][1].object == extent.object
    del home.bucket.objects[extent.object]
    assert [each[0] for each in found(home)] == [T0, T1]


def test_a_listing_that_lags_is_not_believed(home: Home) -> None:
    for name in home.names("staged-"):
        home.bucket.unlisted[name] = None, home.clock() + 1_000_000
    assert found(home) == []


def test_requests_are_bounded() -> None:
    home = Home()
    create_home(home.store, LOG_ID, home.clock)
    home.topic(partitions=2)
    for number in range(REQUESTS_MAX):
        home.commit(str(number))
    for number in range(20):
        home.stage({0: [str(number)], 1: [str(number)]})
    del home.bucket.objects[home.state.extents[T1][7].object]
    store = home.store.reopen()
    broken = unreadable_extents(store, home.state)
    assert [each.key for each in broken] == [T0, T1]
    counts = store.counts.as_dict()
    assert sum(counts.values()) <= REQUESTS_MAX, counts
