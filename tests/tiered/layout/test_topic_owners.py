"""Whose a bucket's topics are: what is asked and written, and how seldom."""

from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import LOCAL
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.layout.topic_owners import LOOK_MS, PREFIX, TopicOwners
from sparklog.tiered.settings import RemoteSettings, read_settings, write_settings

TOPICS = {"A" * 22: "a", "B" * 22: "b"}


def home(path: Path, name: str) -> str:
    (path / name).mkdir(exist_ok=True)
    write_settings(LOCAL, str(path / name), RemoteSettings("s3://bucket"))
    return str(path / name)


def test_requests(tmp_path: Path, clock: ManualClock, store: FaultStore) -> None:
    owners = TopicOwners(LOCAL, home(tmp_path, "log"), store, clock)
    assert owners.foreign(TOPICS) == {}
    assert (store.counts.gets, store.counts.puts) == (2, 3)
    for _ in range(10):
        assert owners.foreign(TOPICS) == {}
    assert (store.counts.gets, store.counts.puts) == (2, 3)
    clock.advance(LOOK_MS)
    assert owners.foreign(TOPICS) == {}
    assert (store.counts.gets, store.counts.puts) == (2 + 3, 3)
    assert owners.foreign(TOPICS | {"C" * 22: "c"}) == {}  # a new topic is looked at at once
    assert (store.counts.gets, store.counts.puts) == (5 + 4, 4)


def test_each_start_writes_another_token(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    path, seen = home(tmp_path, "log"), set()
    for _ in range(40):
        assert TopicOwners(LOCAL, path, store, clock).foreign(TOPICS) == {}
        settings = read_settings(LOCAL, path)
        assert settings is not None
        seen.add(settings.tokens[-1])
        assert len(settings.tokens) <= 16
        assert settings.tokens[-1].encode() in store.get(PREFIX + settings.log_id)
    assert len(seen) == 40


def test_services_of_one_log_dir_lead_in_turns(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    """Each writes its token once, and knows the others'; of a copied log dir it knows none."""
    path = home(tmp_path, "log")
    leaders = [TopicOwners(LOCAL, path, store, clock) for _ in range(3)]
    for leader in leaders * 3:
        clock.advance(LOOK_MS)
        assert leader.foreign(TOPICS) == {}
    assert store.counts.puts == 2 + 3
    for _ in range(20):  # so many starts that its own token is kept no longer
        TopicOwners(LOCAL, path, store, clock).foreign(TOPICS)
    clock.advance(LOOK_MS)
    assert leaders[0].foreign(TOPICS) == {}
    settings = read_settings(LOCAL, path)
    assert settings is not None
    (tmp_path / "copy").mkdir()
    write_settings(LOCAL, str(tmp_path / "copy"), settings)
    assert TopicOwners(LOCAL, str(tmp_path / "copy"), store, clock).foreign(TOPICS) == {}
    clock.advance(LOOK_MS)
    for leader in leaders:
        assert leader.foreign(TOPICS).keys() == TOPICS.keys()
    assert TopicOwners(LOCAL, path, store, clock).foreign(TOPICS).keys() == TOPICS.keys()


def test_only_what_is_anothers_is_left_alone(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    """And a look that changes nothing says the same."""
    first = TopicOwners(LOCAL, home(tmp_path, "log"), store, clock)
    first.foreign({"A" * 22: "a"})
    other = home(tmp_path, "other")
    objects = dict(store.bucket.objects)
    assert TopicOwners(LOCAL, other, store, clock).foreign(TOPICS, dry_run=True).keys() == {
        "A" * 22
    }
    assert store.bucket.objects == objects
    second = TopicOwners(LOCAL, other, store, clock)
    found = second.foreign(TOPICS)
    assert found.keys() == {"A" * 22}
    assert str(tmp_path / "log") in found["A" * 22]
    assert first.foreign(TOPICS).keys() == {"B" * 22}
    assert second.forget(TOPICS) == 0
    assert first.forget({}) == 1  # a
    clock.advance(LOOK_MS)
    assert second.foreign(TOPICS) == {}


def test_what_somebody_removed_is_written_again(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    owners = TopicOwners(LOCAL, home(tmp_path, "log"), store, clock)
    owners.foreign(TOPICS)
    names = store.bucket.names()
    store.delete(names)
    clock.advance(LOOK_MS)
    assert owners.foreign(TOPICS) == {}
    assert store.bucket.names() == names


def test_nobody_can_tell_while_the_store_is_down(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    path = home(tmp_path, "log")
    owners = TopicOwners(LOCAL, path, store, clock)
    store.down(600_000)
    with pytest.raises(StorageUnavailableError):
        owners.foreign(TOPICS)
    clock.advance(600_000)
    assert owners.foreign(TOPICS) == {}
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidRequestError, match="no remote storage"):
        TopicOwners(LOCAL, str(tmp_path / "none"), store, clock).foreign(TOPICS)


def test_a_log_is_given_the_url_of_its_store(
    tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    (tmp_path / "log").mkdir()
    owners = TopicOwners(LOCAL, str(tmp_path / "log"), store, clock)
    with pytest.raises(InvalidRequestError, match="has no remote storage: set the URL"):
        owners.foreign(TOPICS)
    home(tmp_path, "log")
    assert owners.foreign(TOPICS) == {}
