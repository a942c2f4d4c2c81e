"""`status` of a log in a store: red where a read or an append fails, and not where both work."""

import errno

import pytest

from sparklog.diskless.names import HOME, entry_name
from sparklog.service.health import Examiner, Health, Level, examine
from sparklog.tiered.object_store.memory_driver import MemoryDriver
from tests.damage.bucket import BucketHome, MemoryPlace
from tests.diskless.logs import LOG_ID


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


@pytest.mark.parametrize("error", ["rights", "full", "silent", ""])
def test_a_store_that_refuses_writes(
    place: MemoryPlace, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Credentials without the right to write are named, and are no fault of the log."""
    errors = {
        "rights": PermissionError("403"), "full": OSError(errno.ENOSPC, "no space left"),
        "silent": TimeoutError("no answer"),
    }  # fmt: skip
    asked: list[str] = []

    def create(self: MemoryDriver, name: str, data: bytes, crc: int) -> bool:
        asked.append(name)
        if error:
            raise errors[error]
        return False

    monkeypatch.setattr(MemoryDriver, "create", create)
    before = place.files()
    examiner = Examiner(place.path)
    check = [examiner.examine().check("writable") for _ in range(2)][1]
    assert check is not None
    assert (check.level, check.what.partition(";")[0]) == {
        "rights": (Level.GREEN, f"these credentials may only read {place.path}"),
        "full": (
            Level.RED, f"it can't be written: can't create {place.path}/{HOME}: no space left"
        ),
        "silent": (Level.GREEN, "its store answers"),
    }.get(error, (Level.GREEN, "the log is writable"))  # fmt: skip
    assert asked == [HOME]
    assert place.files() == before


def test_the_look_creates_nothing(place: MemoryPlace) -> None:
    before = place.files()
    check = examine(place.path).check("writable")
    assert check is not None
    assert (check.level, check.what) == (Level.GREEN, "the log is writable")
    assert place.files() == before
