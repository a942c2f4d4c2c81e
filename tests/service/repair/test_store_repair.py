"""`verify --repair` of a log in a store: each advice of a message is carried out as it says."""

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.diskless.home_object import known_home, place_home
from sparklog.diskless.names import HOME
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.log.topic_names import new_topic_id
from sparklog.service import verify
from sparklog.service.health import Level, examine
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store


def fill(url: str) -> str:
    """Make a log of three commits; return its id."""
    with sparklog.open(url, mode="rw") as log:
        log.create_topic("t", 2)
        for n in range(3):
            log.append("t", pa.table({"value": [f"{n}a", f"{n}b"]}), partition=n % 2)
        return str(log.home.identity)


def values(url: str) -> set[bytes]:
    with sparklog.open(url) as log:
        return set(log.read("t").read_all().column("value").to_pylist())


ALL = {f"{n}{x}".encode() for n in range(3) for x in "ab"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/home"


@pytest.fixture
def store(url: str) -> Store:
    fill(url)
    return open_store(url)


def obey(error: Exception) -> int:
    """Run the command that a message quotes."""
    (command,) = re.findall(r"`sparklog ([^`]*--repair)`", str(error))
    return run(shlex.split(command))


def break_home(store: Store, how: str) -> None:
    raw = store.get(HOME)
    if how == "missing":
        store.delete([HOME])
    elif how == "another log's":
        store.delete([HOME])
        place_home(store, new_topic_id(), lambda: 5)
    else:
        flipped = raw.replace(b'"log_id": "', b'"log_id": "x')
        store.put(HOME, {"empty": b"", "cut": raw[:40], "flipped": flipped}[how])


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "flipped", "another log's"])
@pytest.mark.parametrize("spelled", ["url", "path"])
def test_a_home_object_is_written_again(url: str, store: Store, how: str, spelled: str) -> None:
    path = url if spelled == "url" else url.removeprefix("file://")
    log_id = known_home(store).log_id
    break_home(store, how)
    for mode in ("r", "rw"):
        with pytest.raises(DataCorruptionError, match=r"sparklog verify \S+ --repair") as told:
            sparklog.open(path, mode=mode).topics()
        assert told.value.path == f"{url}/{HOME}"
    assert examine(path).level is Level.RED
    report = verify(path)
    (finding,) = report.findings
    assert (report.ok, finding.file, report.partitions) == (False, f"{url}/{HOME}", 2)
    assert finding.repair is not None
    assert obey(told.value) == 0
    assert known_home(store).log_id == log_id
    assert values(path) == ALL
    assert verify(path).findings == []
    kept = [one.name for one in store.list("quarantine/")]
    assert len(kept) == (0 if how == "missing" else 1)


def test_a_home_object_of_two_logs_is_not_guessed(url: str, store: Store, tmp_path: Path) -> None:
    fill(f"file://{tmp_path}/other")
    other = open_store(f"file://{tmp_path}/other")
    for one in other.list("ledger-"):
        store.put(one.name, other.get(one.name))
    store.delete([HOME])
    before = [one.name for one in store.list()]
    report = verify(url, repair=True)
    assert not report.ok
    assert report.findings[0].repair is None
    assert [one.name for one in store.list()] == before


def test_neighbours_of_a_lost_ledger(url: str, store: Store) -> None:
    """Without a home object and without a ledger states and staged objects still prove a log."""
    store.put(f"staged-{known_home(store).log_id}/{3:020d}/task-x", b"x")
    store.delete([HOME, *(one.name for one in store.list("ledger-"))])
    for mode in ("r", "rw"):
        with pytest.raises(DataCorruptionError, match="is missing, but staged-"):
            sparklog.open(url, mode=mode)
    assert examine(url).level is Level.RED


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_lost_ledger_is_no_new_log(url: str, store: Store, mode: str) -> None:
    """The home object is there, all entries are missing: the topics' owner objects prove some."""
    store.delete([one.name for one in store.list("ledger-")])
    for _ in range(2):
        with pytest.raises(DataCorruptionError, match=r"was created \(owners/"):
            sparklog.open(url, mode=mode).topics()
    assert examine(url).level is Level.RED
    assert not verify(url).ok


def test_topics_with_names_like_the_ledgers(tmp_path: Path) -> None:
    """In an archive such topics are no sign of a log; nor in a log dir."""
    store, topic_id = open_store(f"file://{tmp_path}/archive"), new_topic_id()
    for topic in ("ledger", "state-x", "stations", "ledger-" + "x" * 20):
        store.put(f"{topic}-0-{topic_id}/{0:020d}-{new_topic_id()}.log", b"x")
    with pytest.raises(InvalidRequestError, match="is an archive"):
        sparklog.open(f"{tmp_path}/archive", mode="rw")
    with sparklog.open(store.url) as log:
        assert not log.home.ledger.is_kept
    with sparklog.open(f"{tmp_path}/dir", mode="rw") as log:
        log.create_topic("ledger-" + "x" * 20)
    with sparklog.open(f"{tmp_path}/dir") as log:
        assert list(log.topics()) == ["ledger-" + "x" * 20]
