"""Making and opening a log in a store."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.diskless.home import open_log
from sparklog.diskless.names import HOME
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogReplacedError,
    UnsupportedVersionError,
)
from sparklog.log.admin import create_topic
from sparklog.log.log import home_of
from sparklog.service import Service
from sparklog.service.health import examine
from sparklog.storage.stored_json import seal
from sparklog.tiered.layout.topic_owners import is_owned
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.target import open_store


def test_makers_at_the_same_time_make_one_log(url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        logs = list(pool.map(lambda _: open_log(url, mode="rw"), range(8)))
    assert len({home_of(log).identity for log in logs}) == 1
    assert open_store(url).get(HOME)


def test_no_log_is_said_so(url: str) -> None:
    with open_log(url) as log, pytest.raises(InvalidRequestError, match="contains no log"):
        log.commits()
    assert not open_store(url).list()
    open_log(url, mode="rw").close()
    with open_log(url) as log:
        assert log.commits().num_rows == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("owners/abc", "copies of a log dir"),
        ("t-0-AAAAAAAAAAAAAAAAAAAAAA/x.log", "copies of a log dir"),
        ("photos/cat.jpg", "other objects are stored there"),
        ("sparklog.import", "imported here"),
    ],
)
def test_a_place_with_something_else_is_refused(url: str, name: str, words: str) -> None:
    open_store(url).put(name, b"x")
    with pytest.raises(InvalidRequestError, match=words):
        open_log(url, mode="rw")
    assert [one.name for one in open_store(url).list()] == [name]


def test_a_home_object_that_cannot_be_read_stops_everybody(url: str) -> None:
    store = open_store(url)
    for raw, error in (
        (b"{}", DataCorruptionError),
        (seal("home", {"made": 1}), DataCorruptionError),
        (seal("home", {"log_id": "x"}).replace(b'"version": 1', b'"version": 9'),
         UnsupportedVersionError),
    ):  # fmt: skip
        store.put(HOME, raw)
        with pytest.raises(error, match=r"sparklog\.home"):
            open_log(url, mode="rw")
        with pytest.raises(error, match=r"sparklog\.home"):
            open_log(url).commits()


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_log_without_home_object_and_ledger_is_no_archive(tmp_path: Path, mode: str) -> None:
    """An archive would give readers the merged segments alone."""
    url = f"memory://{tmp_path}"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["a", "b"]}))
    with Service(url) as service:
        service.run_once()
    store = open_store(url)
    lost = [one.name for one in store.list() if one.name.startswith((HOME, "ledger-", "sta"))]
    copy = {name: store.get(name) for name in lost}
    store.delete(lost)
    with pytest.raises(DataCorruptionError, match="restore all objects from a copy"):
        sparklog.open(url, mode).topics()
    assert examine(url).level.value == "red"
    for name, raw in copy.items():
        store.put(name, raw)
    with sparklog.open(url, mode) as log:
        assert log.offsets("t") == {0: (0, 2)}


def test_a_topic_has_an_owner_and_a_prefix_of_its_own(url: str) -> None:
    with sparklog.open(url, mode="rw") as log:
        info = log.create_topic("t", 2)
    assert is_owned(open_store(url), info.id)
    assert info.dirs[1] == f"{url}/t-1-{info.id}"


def test_a_log_that_was_replaced_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sparklog.diskless.view as views

    writer, reader = sparklog.open(url, mode="rw"), sparklog.open(url)
    writer.create_topic("old")
    assert list(reader.topics()) == list(writer.topics()) == ["old"]
    store = open_store(url)
    store.delete([one.name for one in store.list()])
    with sparklog.open(url, mode="rw") as other:
        other.create_topic("new")
    monkeypatch.setattr(views, "HOME_MS", 0)
    assert list(reader.topics()) == ["new"]
    assert list(writer.topics()) == ["new"]
    with pytest.raises(LogReplacedError):
        writer.create_topic("t")


def test_a_store_that_does_not_pass_its_trial_is_no_home(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(self: LocalDriver, name: str, data: bytes, crc: int) -> bool:
        self.put(name, data, crc)
        return True

    monkeypatch.setattr(LocalDriver, "create", create)
    with pytest.raises(InvalidRequestError, match=r"can't be a log's home: .* succeeded"):
        open_log(url, mode="rw")
    assert not open_store(url).list()


def test_where_a_put_does_not_replace_atomically_nothing_rides_in_entries(url: str) -> None:
    store = open_store(url)
    store._driver.replaces = False
    rows = pa.table({"value": ["a", "b"]})
    with open_log(url, mode="rw", store=store) as log:
        create_topic(home_of(log).commits, "t", 1, {}, False)
        before = store.counts.puts
        log.append("t", rows, partition=0)
        assert store.counts.puts == before + 2
    (staged,) = [one.name for one in store.list() if one.name.startswith("staged-")]
    (entry,) = [one.size for one in store.list() if one.name.endswith("1") and "ledger" in one.name]
    assert store.size(staged) > 0
    assert entry < 1000
