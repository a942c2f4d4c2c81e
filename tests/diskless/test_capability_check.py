"""The trial passes stores that keep their word and tells of each other one what it did."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.diskless.capability_check import StoreCapabilities, check_capabilities
from sparklog.diskless.names import TRIAL
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.testing.faultstore import Faults, FaultStore
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.object_store.driver import Driver
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.tiered.s3 import S3Server

QUICK = Retry(attempts=3, first_ms=1)


def opened(kind: str, tmp_path: Path) -> ObjectStore:
    if kind == "files":
        return open_store(f"file://{tmp_path}/home")
    return open_store("memory://trial") if kind == "memory" else FaultStore()


@pytest.mark.parametrize("kind", ["files", "memory", "simulated"])
@pytest.mark.parametrize("creators", [1, 16])
def test_good_stores_pass_and_are_left_as_they_were(
    kind: str, creators: int, tmp_path: Path
) -> None:
    store = opened(kind, tmp_path)
    store.put("mine", b"x")
    found = check_capabilities(store, creators=creators, clock=lambda: 0)  # however long it takes
    assert found == StoreCapabilities(replaces=True)
    assert [one.name for one in store.list()] == ["mine"]
    counts = store.counts.as_dict()
    assert counts["puts"] == 1 + 10 * (creators + 1) + 11
    store.delete(["mine"])


@pytest.mark.deep
@pytest.mark.s3
def test_an_s3_server_passes(s3: S3Server) -> None:
    store = open_store(f"{s3.bucket()}/below", s3.options())
    store.put("mine", b"x")
    assert check_capabilities(store) == StoreCapabilities(replaces=True)
    assert [one.name for one in store.list()] == ["mine"]


class Broken(LocalDriver):
    """A store of files that does one thing wrong."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.lock, self.turn = threading.Lock(), threading.Condition()
        self.looked = Counter[str]()


class LooksThenPuts(Broken):
    """As SeaweedFS until 4.17: all who look before the first has written win."""

    def create(self, name: str, data: bytes, crc: int) -> bool:
        try:
            self.size(name)
            return False
        except FileNotFoundError:
            with self.turn:
                self.looked[name] += 1
                self.turn.notify_all()
                assert self.turn.wait_for(lambda: self.looked[name] > 1, timeout=240)
            self.put(name, data, crc)
            return True


class Ignores(Broken):
    def create(self, name: str, data: bytes, crc: int) -> bool:
        self.put(name, data, crc)
        return True


class IgnoresAndSaysNo(Broken):
    """It answers as it should, and writes all the same."""

    def create(self, name: str, data: bytes, crc: int) -> bool:
        with self.lock:
            made = super().create(name, data, crc)
            self.put(name, data, crc)
            return made


class LastOneWins(Broken):
    """One is told that it has won, and another's bytes lie there."""

    def create(self, name: str, data: bytes, crc: int) -> bool:
        with self.lock:
            made = super().create(name, data, crc)
            if not made and not name.endswith("done"):
                self.put(name, data, crc)
            return made


class RefusesAll(Broken):
    """As an inverted check: it says that there is one, and there is none."""

    def create(self, name: str, data: bytes, crc: int) -> bool:
        raise FileExistsError(name)


class ShowsHalf(Broken):
    """As an exclusive create of a file: it shows while it is written."""

    def create(self, name: str, data: bytes, crc: int) -> bool:
        self._make_directory(self._path(name).rpartition("/")[0])
        try:
            with open(self._path(name), "xb", buffering=0) as file:
                file.write(data[:100])
                with self.turn:  # who lost, and is sent to look, has done so
                    assert self.turn.wait_for(lambda: self.looked[name], timeout=240)
                file.write(data[100:])
        except FileExistsError:
            return False
        return True

    def read(self, name: str, start: int, end: int) -> bytes:
        found = super().read(name, start, end)
        with self.turn:
            self.looked[name] += 1
            self.turn.notify_all()
        return found


class RemembersMisses(Broken):
    """As a cache before the store: what wasn't there isn't there a while later."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.missed: set[str] = set()

    def read(self, name: str, start: int, end: int) -> bytes:
        if name in self.missed:
            raise FileNotFoundError(name)
        try:
            return super().read(name, start, end)
        except FileNotFoundError:
            self.missed.add(name)
            raise


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (LooksThenPuts, "16 concurrent requests to create .* succeeded.*SeaweedFS before 4.18"),
        (Ignores, "succeeded, but only the first request may succeed"),
        (IgnoresAndSaysNo, "has the content of creator"),
        (LastOneWins, "has the content of creator"),
        (RefusesAll, "a GET did not find it.*check for a cache"),
        (ShowsHalf, "that no creator wrote: an object is visible before it is complete"),
        (RemembersMisses, "a GET did not find it.*check for a cache"),
    ],
)
def test_stores_that_are_not_fit_are_refused(
    driver: Callable[[str], Driver], why: str, tmp_path: Path
) -> None:
    store = ObjectStore(driver(str(tmp_path / "home")))
    with pytest.raises(InvalidRequestError, match=f"home can't be a log's home: .*{why}") as error:
        check_capabilities(store)
    assert error.value.path == store.url
    assert store.list() == []
    # another store, or that one repaired
    check_capabilities(ObjectStore(LocalDriver(str(tmp_path / "home"))))


@pytest.mark.parametrize("driver", [Ignores, IgnoresAndSaysNo, RefusesAll, RemembersMisses])
def test_what_one_creator_alone_finds(driver: Callable[[str], Driver], tmp_path: Path) -> None:
    store = ObjectStore(driver(str(tmp_path)))
    with pytest.raises(InvalidRequestError, match="can't be a log's home"):
        check_capabilities(store, creators=1)


class RewritesInPlace(Broken):
    """An object that is put over is away in between; those who look come just then."""

    replaces = True  # so it says

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.away, self.missed = threading.Event(), threading.Event()

    def put(self, name: str, data: bytes, crc: int) -> None:
        if not name.endswith("/replaced") or not self.looked[name]:
            self.looked[name] += 1
            super().put(name, data, crc)
            return
        super().delete([name])
        self.away.set()
        assert self.missed.wait(240)
        super().put(name, data, crc)

    def read(self, name: str, start: int, end: int) -> bytes:
        if name.endswith("/replaced"):
            assert self.away.wait(240)
        try:
            return super().read(name, start, end)
        except FileNotFoundError:
            if name.endswith("/replaced"):
                self.missed.set()
            raise


def test_where_a_put_is_not_atomic_the_store_passes_and_that_is_told(tmp_path: Path) -> None:
    assert not check_capabilities(ObjectStore(RewritesInPlace(str(tmp_path)))).replaces


def test_a_store_that_says_so_itself_is_believed(tmp_path: Path) -> None:
    driver = LocalDriver(str(tmp_path))
    driver.replaces = False  # type: ignore[misc]
    assert not check_capabilities(ObjectStore(driver)).replaces


def test_unclear_answers_are_no_reason_to_refuse() -> None:
    """A busy store says 409, 503, nothing; who won is what lies there."""
    faults = Faults(reset=0.1, busy=0.1, lost=0.2, again=0.2, conflict=0.3)
    for seed in range(10):
        store = FaultStore(seed=seed, faults=faults, attempts=30)
        check_capabilities(store)


def test_a_slow_store_is_tried_with_fewer_names() -> None:
    store, times = FaultStore(), iter(range(0, 100_000, 900))
    check_capabilities(store, budget_ms=3000, clock=lambda: next(times))
    assert sum(effect.startswith("create") for effect in store.effects) == 4
    store = FaultStore()
    check_capabilities(store, budget_ms=0)
    assert sum(effect.startswith("create") for effect in store.effects) == 1


@pytest.mark.parametrize(
    "spoil", [lambda store: store.down(10**9), lambda store: store.refuse()], ids=["down", "rights"]
)
def test_a_store_that_does_not_answer_is_not_refused(spoil: Callable[[Any], None]) -> None:
    store = FaultStore(attempts=2)
    spoil(store)
    with pytest.raises(StorageUnavailableError):
        check_capabilities(store)


def test_no_right_to_write_is_said_as_it_is(tmp_path: Path) -> None:
    class ReadOnly(LocalDriver):
        def create(self, name: str, data: bytes, crc: int) -> bool:
            raise PermissionError("read only")

    with pytest.raises(StorageUnavailableError, match="check key, secret and rights") as error:
        check_capabilities(ObjectStore(ReadOnly(str(tmp_path)), retry=QUICK))
    assert TRIAL in str(error.value)


def test_protocols_that_can_not_create(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fsspec.implementations.memory import MemoryFileSystem
    from fsspec.registry import _registry

    class Share(MemoryFileSystem):
        protocol = "smb"
        store: dict[str, Any] = {}  # noqa: RUF012
        cachable = False

    monkeypatch.setitem(_registry, "smb", Share)
    with pytest.raises(InvalidRequestError, match="smb can't create an object"):
        check_capabilities(open_store("smb://host/share"))
    check_capabilities(open_store(f"file://{tmp_path}"))
