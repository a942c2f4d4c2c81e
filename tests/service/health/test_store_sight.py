"""`status` of a log in a store: red where a read or an append fails, and not where both work."""

from collections.abc import Iterator

import pytest

from sparklog.diskless.names import entry_name
from sparklog.service.health import Health, examine
from tests.damage.bucket import BucketHome, MemoryPlace, home
from tests.diskless.logs import LOG_ID


@pytest.fixture(scope="module")
def made() -> BucketHome:
    return home()


@pytest.fixture
def place(made: BucketHome) -> Iterator[MemoryPlace]:
    with made.lay_out(made.files) as place:
        yield place


def level(found: Health, name: str) -> str:
    check = found.check(name)
    assert check is not None
    return str(check.level)


def removed(place: MemoryPlace, name: str) -> Health:
    files = place.files()
    del files[name]
    place.remove()
    place.put(files)
    return examine(place.path)


def test_a_lost_entry_of_the_past_is_amber_for_both_work(place: MemoryPlace) -> None:
    found = removed(place, entry_name(LOG_ID, 3))
    assert (level(found, "writable"), level(found, "partitions")) == ("green", "amber")
    assert entry_name(LOG_ID, 3) in found.verdict


def test_an_entry_that_readers_need_is_red(place: MemoryPlace, made: BucketHome) -> None:
    needed = next(kind for kind in made.kinds if kind.name == "inline entry")
    found = removed(place, needed.file)
    assert level(found, "writable") == "red"
    assert "can't be written" in found.verdict


@pytest.mark.parametrize("kind", ["staged object", "segment", "table", "piece of a table"])
def test_a_missing_object_of_records_is_red(
    place: MemoryPlace, made: BucketHome, kind: str
) -> None:
    name = next(each.file for each in made.kinds if each.name == kind)
    found = removed(place, name)
    check = found.check("partitions")
    assert check is not None
    assert (level(found, "writable"), str(check.level)) == ("green", "red")
    assert name in check.what
    assert check.command == f"sparklog verify {place.path}"
