"""`verify --repair` of a log in a store: each advice of a message is carried out as it says."""

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.diskless.home_object import known_home, place_home
from sparklog.diskless.ledger_repair import find_lost_entries
from sparklog.diskless.names import HOME, parse_state
from sparklog.diskless.state_objects import write_state
from sparklog.errors import DataCorruptionError, InvalidRequestError, LogReplacedError
from sparklog.format.batch import encode_one
from sparklog.log.commit import Identity
from sparklog.log.log import Log, home_of
from sparklog.log.topic_names import new_topic_id
from sparklog.service import verify
from sparklog.service.health import Level, examine
from sparklog.service.verification.findings import Severity
from sparklog.storage.commits import Chunk
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store


def fill(url: str) -> str:
    """Make a log of three commits; return its id."""
    with sparklog.open(url, mode="rw") as log:
        log.create_topic("t", 2)
        for n in range(3):
            log.append("t", pa.table({"value": [f"{n}a", f"{n}b"]}), partition=n % 2)
        return str(home_of(log).identity)


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
        assert not home_of(log).ledger.exists
    with sparklog.open(f"{tmp_path}/dir", mode="rw") as log:
        log.create_topic("ledger-" + "x" * 20)
    with sparklog.open(f"{tmp_path}/dir") as log:
        assert list(log.topics()) == ["ledger-" + "x" * 20]


# --- entries that are lost ----------------------------------------------------------------------


def write(log: Log, batches: range) -> None:
    """Commit micro-batches of two records each as writer q."""
    for batch in batches:
        raws = [encode_one(None, f"{x}{batch}".encode(), timestamp=5) for x in "bc"]
        raws[1][:8] = (1).to_bytes(8, "big")
        data = b"".join(raws)
        chunk = Chunk(
            topic="t", partition=batch % 2, data=data, size_bytes=len(data), records=2,
            min_timestamp=5, max_timestamp=5,
        )  # fmt: skip
        log.commit([chunk], identity=Identity(writer="q", batch=batch, fingerprint="f"))


def entries(store: Store) -> list[str]:
    return [one.name for one in store.list("ledger-")]


def lose(store: Store, how: str) -> None:
    """Lose the entries of the batches 4 and 5, numbers 5 and 6."""
    names = entries(store)
    raws = [store.get(name) for name in names]
    if how == "gap":  # a roll-back under a writer, which then committed once more
        store.delete([names[5]])
    elif how == "missing with a state":
        store.delete([names[5], names[6]])
    elif how == "copy behind the head":
        store.delete([names[5], names[6]])
        store.put(names[5], raws[3])
    elif how == "flipped":
        store.put(names[5], raws[5][:80] + bytes([raws[5][80] ^ 4]) + raws[5][81:])
    elif how == "far ahead":
        store.delete([names[5], names[6]])
        store.put(f"{names[0][:-20]}{10**15:020d}", raws[6])


LOSSES = ["gap", "missing with a state", "copy behind the head", "flipped", "far ahead"]


@pytest.mark.parametrize("how", LOSSES)
def test_lost_entries_are_given_up(url: str, how: str) -> None:
    store = open_store(url)
    with sparklog.open(url, mode="rw") as log:
        log.create_topic("t", 2)
        write(log, range(6))
        head = home_of(log).head.follow()
        if how == "missing with a state":
            write_state(store, head)
        log.commit_offsets("g", {"t": {0: 6, 1: 6}})
        assert len(entries(store)) == 7
        lose(store, how)
        if how != "far ahead":
            with pytest.raises(DataCorruptionError, match="lists the commits that would") as told:
                sparklog.open(url).topics()
        else:
            told = None
        report = verify(url)
        (finding,) = [f for f in report.findings if f.repair is not None]
        assert not report.ok
        assert finding.file.endswith(f"{5:020d}")
        before = {one.name for one in store.list()}
        assert run(["verify", url, "--repair", "--dry-run"]) == 1
        assert {one.name for one in store.list()} == before
        assert (run(["verify", url, "--repair"]) if told is None else obey(told.value)) == 0
        assert {one.name for one in store.list("quarantine/")} or how == "missing with a state"
        if how not in ("far ahead", "copy behind the head"):
            with pytest.raises(LogReplacedError):  # the writer that knew what was given up
                write(log, range(6, 7))
    left = verify(url).findings
    assert {finding.severity for finding in left} == {Severity.WARNING}
    assert "group g is at offset 6 of t-0, above its end 4" in left[0].what
    assert values(url) == {f"{x}{n}".encode() for n in range(4) for x in "bc"}
    with sparklog.open(url, mode="rw") as log:
        assert log.offsets("t") == {0: (0, 4), 1: (0, 4)}
        write(log, range(4, 8))
        assert log.offsets("t") == {0: (0, 8), 1: (0, 8)}
    assert verify(url).ok


def test_what_is_lost_is_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(url)
    with sparklog.open(url, mode="rw") as log:
        log.create_topic("t", 2)
        write(log, range(6))
        log.commit_offsets("g", {"t": {0: 6, 1: 6}})
        log.create_topic("late")
    store.delete([entries(store)[5]])
    assert run(["verify", url, "--repair", "--dry-run"]) == 1
    words = capsys.readouterr().out
    done = verify(url, repair=True).done
    for what in (
        "ledger entries 5 to 7 (3, of which 2 can be read)",
        "t-1: offsets [4, 6)",
        "writer q: micro-batches 5",
        "topic late: it was created or altered",
        "group g: offset 6 of t-1 is above its end 4",
    ):
        assert f"lost: {what}" in done
        assert what in " ".join(words.split())
    assert verify(url).ok


def test_a_state_tells_what_its_missing_entry_had(url: str) -> None:
    store = open_store(url)
    with sparklog.open(url, mode="rw") as log:
        log.create_topic("t", 2)
        write(log, range(6))
        write_state(store, home_of(log).head.follow())
    store.delete(entries(store)[5:])
    done = verify(url, repair=True).done
    for what in ("t-0: offsets [4, 6)", "t-1: offsets [4, 6)", "writer q: micro-batches 4 to 5"):
        assert f"lost: {what}" in done


def test_a_state_that_is_deleted_after_it_was_listed_proves_nothing(url: str) -> None:
    store = open_store(url)
    with sparklog.open(url, mode="rw") as log:
        log_id = str(home_of(log).identity)
        log.create_topic("t", 2)
        write(log, range(6))
        write_state(store, home_of(log).head.follow())
    store.delete(entries(store)[5:])
    names = [one.name for one in store.list()]
    found = find_lost_entries(store, log_id, names)
    assert found is not None
    assert found.first == 5
    states = [name for name in names if parse_state(log_id, name) is not None]
    assert states
    store.delete(states)
    assert find_lost_entries(store, log_id, names) is None


def test_a_service_of_the_lost_entries_is_fenced(url: str) -> None:
    """Its term was lost, too: the term of the next service is above it."""
    store = open_store(url)
    with sparklog.open(url, mode="rw") as log:
        log.create_topic("t", 2)
        write(log, range(4))
        lease = home_of(log).service_lease()
        assert lease.acquire()
        lost = home_of(log).head.follow()
        assert lost.term == 1
        store.delete(entries(store)[5:])
        assert verify(url, repair=True).ok
        with sparklog.open(url, mode="rw") as other:
            assert home_of(other).head.follow().term == 2
            assert home_of(other).service_lease().acquire()
            assert home_of(other).head.follow().term == 3
        with pytest.raises(LogReplacedError):
            home_of(log).commits.catch_up()


# --- groups, signs of life, owners --------------------------------------------------------------


@pytest.mark.parametrize("how", ["empty", "doubled", "copied"])
def test_a_damaged_position_of_a_group(url: str, store: Store, how: str) -> None:
    with sparklog.open(url, mode="rw") as log:
        for offset in (1, 2):
            log.commit_offsets("g", {"t": {0: offset, 1: offset}})
    newest = [one.name for one in store.list("readers/")][-1]
    raw = store.get(newest)
    name = newest if how != "copied" else f"{newest[:-1]}2"
    store.put(name, {"empty": b"", "doubled": raw + raw}.get(how, raw))
    (finding,) = verify(url).findings
    assert (finding.severity, finding.file) == (Severity.DIFFERENCE, f"{url}/{name}")
    assert "continues at an older position" in finding.what
    expected = 2 if how == "copied" else 1
    with sparklog.open(url) as log:
        assert home_of(log).groups.positions("g")[("t", 0)].offset == expected
    assert verify(url, repair=True).ok
    assert verify(url).findings == []
    with sparklog.open(url, mode="rw") as log:
        log.commit_offsets("g", {"t": {0: 2}})
        found = home_of(log).groups.positions("g")
        assert {key: at.offset for key, at in found.items()} == {("t", 0): 2, ("t", 1): expected}


def test_a_group_without_any_position(url: str, store: Store) -> None:
    with sparklog.open(url, mode="rw") as log:
        log.commit_offsets("g", {"t": {0: 1}})
    (one,) = store.list("readers/")
    store.put(one.name, b"?")
    report = verify(url, repair=True)
    assert not report.ok
    assert [f.severity for f in report.findings] == [Severity.DAMAGE]


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_an_owner_is_written_again(url: str, store: Store, how: str) -> None:
    (one,) = store.list("owners/")
    store.delete([one.name])
    if how == "empty":
        store.put(one.name, b"")
    (finding,) = verify(url).findings
    assert finding.file == f"{url}/{one.name}"
    assert verify(url, repair=True).ok
    assert verify(url).findings == []
    assert store.get(one.name)


def test_signs_of_life_that_are_none(url: str, store: Store) -> None:
    with sparklog.open(url, mode="rw") as log:
        lease = home_of(log).service_lease()
        assert lease.acquire()
        lease.release()
        endpoint = home_of(log).endpoint_lease({})
        assert endpoint.acquire()
        endpoint.release()
    assert verify(url).findings == []
    names = [one.name for prefix in ("service/", "endpoint/") for one in store.list(prefix)]
    for name in names:
        store.put(name, b"[")
    report = verify(url)
    assert report.ok
    assert sorted(f.file for f in report.findings) == sorted(f"{url}/{name}" for name in names)
