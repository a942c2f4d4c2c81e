"""A store's trouble is told as such, in its words, and waited for; only what is gone is lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.log.log import Log, view_of
from sparklog.service import Service
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.reading.store_retry import StoreRetry
from tests.tiered.buckets import archive_log, tiered_log
from tests.tiered.logs import filled

Opened = Callable[..., Log]


@pytest.fixture
def store(clock: ManualClock) -> FaultStore:
    return FaultStore(clock=clock, attempts=3)


@pytest.fixture
def path(tmp_path: Path, clock: ManualClock, store: FaultStore) -> str:
    """A closed log whose closed segments are all remote only."""
    where = str(tmp_path / "log")
    with filled(where, clock, local_retention_bytes="0"):
        service = Service(
            where, remote="memory://bucket", clock=clock, opening=lambda url, options: store
        )
        for _ in range(3):
            assert not service.run_once().errors
        service.close()
    assert len(list(Path(where, "t-0").glob("*.log"))) == 1
    return where


@pytest.fixture
def opened(path: str, store: FaultStore) -> Iterator[Opened]:
    """Opens the log dir through both tiers, or (archive=True) the bucket alone."""
    logs: list[Log] = []

    def make(*, archive: bool = False, **patience: Any) -> Log:
        objects = RemoteObjects(
            lambda: store, BlockCache(1 << 20), retry=StoreRetry(**patience)
        )  # fmt: skip
        if archive:
            logs.append(archive_log(store.url, objects))
        else:
            logs.append(tiered_log(path, objects))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


def log_names(store: FaultStore) -> list[str]:
    return [name for name in store.bucket.names() if name.endswith(".log")]


def test_a_store_that_is_down_is_no_loss(opened: Opened, store: FaultStore) -> None:
    """The missing local file must not be taken for the reason why the remote one can't be read."""
    log = opened()
    store.down(10_000_000)
    store.counts.retries = 0
    with pytest.raises(StorageUnavailableError, match=r"can't read fault://.*: the store is down"):
        log.read("t").read_all()
    assert store.counts.retries == 2
    with pytest.raises(StorageUnavailableError, match="the store is down"):
        log.offsets_for_times("t", {0: 1})


def test_what_spark_brings_to_the_driver_is_whole(opened: Opened, store: FaultStore) -> None:
    store.down(10_000_000)
    with pytest.raises(StorageUnavailableError) as down:
        opened().read("t").read_all()
    found = pickle.loads(pickle.dumps(down.value))
    assert (str(found), found.passing, found.retriable) == (str(down.value), True, True)


def test_credentials_are_told_at_once(opened: Opened, store: FaultStore) -> None:
    log = opened(timeout_ms=60_000)
    store.refuse()
    store.counts.retries = 0
    with pytest.raises(StorageUnavailableError, match="check key, secret and rights") as refused:
        log.read("t").read_all()
    assert (store.counts.retries, refused.value.passing) == (0, False)


def test_an_error_that_is_being_handled_is_no_part_of_the_stores() -> None:
    """Whoever asks a store while a FileNotFoundError of theirs is handled is told the truth."""
    store = FaultStore(attempts=2)
    store.down(10_000_000)
    try:
        raise FileNotFoundError("of the caller's own")
    except FileNotFoundError:
        with pytest.raises(StorageUnavailableError):
            store.get("a")
        (found,) = store.get_many(["a"])
        assert isinstance(found, StorageUnavailableError)


def test_what_is_listed_is_not_lost(
    opened: Opened, store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that says of a listed object that it isn't there contradicts itself."""
    gone, read = log_names(store)[0], store.requests.read

    def miss(name: str, start: int, end: int | None) -> bytes:
        if name == gone:
            raise FileNotFoundError(name)
        return read(name, start, end)

    monkeypatch.setattr(store.requests, "read", miss)
    with pytest.raises(StorageUnavailableError, match="but the store lists the object"):
        opened().read("t").read_all()
    monkeypatch.setattr(store.requests, "read", read)
    assert opened().read("t").read_all().num_rows  # the store reaches it again
    monkeypatch.setattr(store.requests, "read", miss)
    del store.bucket.objects[gone]
    with pytest.raises(DataCorruptionError, match="other objects of the topic exist"):
        opened().read("t").read_all()


def test_what_cannot_be_looked_for_is_not_lost(
    opened: Opened, store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading is allowed and listing isn't; or another service answers 404 to everything."""
    del store.bucket.objects[log_names(store)[0]]

    def refuse(prefix: str, token: str | None, start_after: str = "") -> Any:
        raise PermissionError("no listing for you")

    monkeypatch.setattr(store.requests, "page", refuse)
    with pytest.raises(StorageUnavailableError, match=r"can't be checked: .*no listing for you"):
        opened().read("t").read_all()


@pytest.mark.parametrize("archive", [False, True])
def test_an_object_that_was_cut_is_damage_with_its_range(
    opened: Opened, store: FaultStore, *, archive: bool
) -> None:
    name = log_names(store)[0]
    data, when = store.bucket.objects[name]
    log = opened(archive=archive)
    log.topics()
    store.bucket.objects[name] = data[:100], when
    with pytest.raises(DataCorruptionError, match=f"has 100 bytes, but {len(data)}") as cut:
        log.read("t").read_all()
    assert cut.value.path == f"{store.url}/{name}"
    assert (cut.value.position, cut.value.first) == (100, 0)
    assert cut.value.end is not None and 0 < cut.value.end < 12


def test_a_damaged_manifest_has_its_range(opened: Opened, store: FaultStore) -> None:
    name = next(n for n in store.bucket.names() if n.endswith(".manifest"))
    data, when = store.bucket.objects[name]
    store.bucket.objects[name] = data.replace(b'"topic"', b'"Topic"', 1), when
    with pytest.raises(DataCorruptionError) as damaged:
        opened().read("t").read_all()
    assert damaged.value.path == f"{store.url}/{name}"
    assert damaged.value.first == 0 and damaged.value.end is not None


def test_a_web_page_is_no_object(
    opened: Opened, store: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy or a log-in page answers 200 to whatever it is asked for."""
    page = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>".ljust(10_000)
    with monkeypatch.context() as patch:
        patch.setattr(store.requests, "read", lambda name, start, end: page[start:end])
        patch.setattr(store.requests, "size", lambda name: len(page))
        with pytest.raises(StorageUnavailableError, match="a web page arrived") as raised:
            opened().read("t").read_all()
        assert raised.value.passing
    assert opened().read("t").read_all().num_rows == 12


def restarting(store: FaultStore, failures: int) -> Callable[[], bool]:
    """Have a store that is down come back when it was asked so often whether to stop."""
    asked = [0]

    def stopped() -> bool:
        asked[0] += 1
        if asked[0] == failures:
            store.requests.windows.clear()
        return False

    return stopped


@pytest.mark.parametrize("archive", [False, True])
def test_a_read_waits_while_the_store_restarts(
    opened: Opened,
    store: FaultStore,
    caplog: pytest.LogCaptureFixture,
    *,
    archive: bool,
) -> None:
    log = opened(archive=archive, timeout_ms=60_000, first_ms=1, stopped=restarting(store, 5))
    batches = log.read("t")
    store.down(10**9)
    whole = batches.read_all()
    assert whole.column("offset").to_pylist() == list(range(whole.num_rows))
    assert "waiting for the store" in caplog.text


def test_patience_ends(opened: Opened, store: FaultStore) -> None:
    store.down(10**9)
    with pytest.raises(StorageUnavailableError, match="the store is down"):
        opened(timeout_ms=20, first_ms=1).read("t").read_all()


def test_a_wait_can_be_stopped(opened: Opened, store: FaultStore) -> None:
    store.down(10**9)
    with pytest.raises(StorageUnavailableError, match="the store is down"):
        opened(timeout_ms=10**9, stopped=lambda: True).read("t").read_all()


def test_a_follower_of_an_archive_outlives_an_outage(opened: Opened, store: FaultStore) -> None:
    """No news while the store is away: what polls isn't held up, and goes on when it is back."""
    log = opened(archive=True, follow_timeout_ms=10**9)
    whole = log.read("t", follow=True).read_next_batch().num_rows
    store.down(10**9)
    view: Any = view_of(log)
    listing = view._listing
    listing._listed_ms = -1e9
    assert log.offsets("t")[0][1] >= whole
    assert listing._away_ms is not None
    store.requests.windows.clear()
    listing._again_ms = 0
    listing._listed_ms = -1e9
    log.topics()
    assert listing._away_ms is None


def test_an_archive_that_is_not_followed_has_no_old_news(opened: Opened, store: FaultStore) -> None:
    log = opened(archive=True)
    store.down(10**9)
    view: Any = view_of(log)
    view._listing._listed_ms = -1e9
    with pytest.raises(StorageUnavailableError, match="can't list"):
        log.topics()


def test_patience_is_an_option(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": ["a"]}))
    for given, waits in (({}, (60_000, 7_200_000)), ({"remote.patience.ms": 5}, (5, 5))):
        with sparklog.open(tmp_path / "log", options=given) as log:
            tier: Any = view_of(log)._remote
            assert tier.objects.retry.timeout_ms == waits[0]
            view_of(log).set_following()
            assert tier.objects.retry.timeout_ms == waits[1]


def test_the_store_alone_tries_for_a_second_or_two() -> None:
    assert sum(min(Retry().first_ms * 2**n, Retry().longest_ms) for n in range(4)) == 1500
