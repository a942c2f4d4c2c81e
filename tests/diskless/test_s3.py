"""A log in a bucket of a real S3 server: TLS, credentials, lost answers, the server's death."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.errors import (
    CommitUnknownError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.log import Log
from sparklog.service import Service
from sparklog.service.health import Level, examine
from sparklog.tiered.target import open_store
from tests.micro_batches import commit_batch
from tests.tiered.proxy import Proxy
from tests.tiered.s3 import READER, SECRET, S3Server, started

pytestmark = pytest.mark.s3
SHORT = RetryPolicy(timeout_ms=2000)


@pytest.fixture
def url(s3: S3Server) -> str:
    return f"{s3.bucket()}/log"


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    with Proxy(s3.port) as made:
        yield made


def table(*values: str) -> pa.Table:
    return pa.table({"value": list(values)})


def values(log: Log, topic: str = "t") -> list[str]:
    found = log.read(topic, columns=["value"]).read_all()["value"].to_pylist()
    return [value.decode() for value in found]


def write(log: Log, batch: int, *rows: str) -> bool:
    """Commit a micro-batch; tells whether it was a replay."""
    return commit_batch(log, "q", batch, table(*rows)).replayed


@pytest.mark.deep
def test_a_whole_life_over_tls(s3: S3Server, url: str) -> None:
    options = s3.options(tls=True)
    with sparklog.open(url, mode="rw", storage_options=options) as log:
        log.create_topic("t", config={"file.delete.delay.ms": 0})
        for number in range(40):
            log.append("t", table(f"row {number}"))
        given = {"diskless.merge.max.extents": 10}
        report = Service(url, storage_options=options, options=given).run_once()
        assert not report.errors
        assert report.merged
        log.append("t", table("row 40"))
        assert values(log) == [f"row {number}" for number in range(41)]
        log.delete_records("t", {0: 40})
    with sparklog.open(url, storage_options=options) as log:
        assert values(log) == ["row 40"]
        assert log.commits().num_rows == 41


def test_wrong_credentials_are_told_without_the_secret(s3: S3Server, url: str) -> None:
    wrong = "another-secret-that-nobody-may-see"
    for mode in ("rw", "r"):
        with pytest.raises(SparklogError) as caught:
            sparklog.open(url, mode=mode, storage_options=s3.options(secret=wrong)).topics()
        assert isinstance(caught.value, StorageUnavailableError)
        assert "secret" in str(caught.value)  # the advice
        assert wrong not in str(caught.value)
        assert url.split("/")[2] in str(caught.value)


@pytest.mark.deep
def test_credentials_that_may_only_read(s3: S3Server, url: str) -> None:
    """Their commit fails for certain, and status names them; the objects stay as they are."""
    with sparklog.open(url, mode="rw", storage_options=s3.options()) as log:
        log.create_topic("t")
        log.append("t", table("a"))
    store = open_store(url, s3.options())
    before = store.list()
    reader = s3.options(key=READER)
    refusal = f"these credentials may only read {url}"
    for options, what in ((reader, refusal), (s3.options(), "the log is writable")):
        check = examine(url, storage_options=options).check("writable")
        assert check is not None
        assert (check.level, check.what.startswith(what)) == (Level.GREEN, True)
    assert store.list() == before
    with sparklog.open(url, mode="rw", storage_options=reader) as log:
        with pytest.raises(StorageUnavailableError, match="nothing was committed") as caught:
            log.append("t", table("b"))
        assert not isinstance(caught.value, CommitUnknownError)
        assert values(log) == ["a"]
    assert [one.name for one in store.list()] == [one.name for one in before]


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    with pytest.raises(StorageUnavailableError, match="no-such-bucket"):
        sparklog.open("s3://no-such-bucket/log", mode="rw", storage_options=s3.options())


@pytest.mark.deep
def test_credentials_that_expire_fail_the_batch_which_comes_again(
    s3: S3Server, url: str, proxy: Proxy
) -> None:
    with sparklog.open(
        url, mode="rw", storage_options=s3.options(port=proxy.port), retry_policy=SHORT
    ) as log:
        log.create_topic("t")
        assert not write(log, 0, "a")
        for pattern, words in ((b"", "has expired"), (b"PUT", "nothing was committed")):
            proxy.spoil(pattern, "expired", times=1000)
            with pytest.raises(StorageUnavailableError, match=words) as caught:
                write(log, 1, "b")
            assert not isinstance(caught.value, CommitUnknownError)
            assert caught.value.retriable
            assert SECRET not in str(caught.value)
            proxy.heal()
        write(log, 1, "b")
        assert write(log, 1, "b")
        assert values(log) == ["a", "b"]


@pytest.mark.deep
@pytest.mark.parametrize(
    "way", ["drop", *(pytest.param(way, marks=pytest.mark.deep) for way in ("busy", "refuse"))]
)
def test_answers_that_get_lost_neither_lose_nor_double(
    s3: S3Server, url: str, proxy: Proxy, way: Any
) -> None:
    """The client sends again by itself, and meets what it has made: 412 on its own object."""
    with sparklog.open(url, mode="rw", storage_options=s3.options(port=proxy.port)) as log:
        log.create_topic("t")
        for number in range(10):
            proxy.spoil(b"ledger-", way, times=1 + number % 3)
            log.append("t", table(f"row {number}"))
            assert not write(log, number, f"batch {number}")
        assert proxy.spoiled >= 10
        proxy.heal()
        expected = [row for n in range(10) for row in (f"row {n}", f"batch {n}")]
        assert values(log) == expected
    with sparklog.open(url, storage_options=s3.options()) as log:
        assert log.offsets("t") == {0: (0, 20)}


@pytest.mark.deep
def test_two_hosts_write_at_once(s3: S3Server, url: str) -> None:
    """Each handle is as another host's: they share nothing but the store."""
    logs = [sparklog.open(url, mode="rw", storage_options=s3.options()) for _ in range(3)]
    logs[0].create_topic("t")

    def drive(number: int) -> None:
        for batch in range(10):
            logs[number].append("t", table(f"{number}/{batch}"))

    threads = [threading.Thread(target=drive, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = values(logs[0])
    assert sorted(found) == sorted(f"{n}/{b}" for n in range(3) for b in range(10))
    for number in range(3):  # each one's in its order
        own = [row for row in found if row.startswith(f"{number}/")]
        assert own == [f"{number}/{b}" for b in range(10)]
    for log in logs:
        log.close()


@pytest.mark.slow
@pytest.mark.deep  # the server takes half a minute to start again
def test_a_server_that_dies_and_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = started(tmp_path_factory.mktemp("dying"))
    try:
        url = f"{server.bucket()}/log"
        options = server.options()
        with sparklog.open(url, mode="rw", storage_options=options, retry_policy=SHORT) as log:
            log.create_topic("t")
            write(log, 0, "a")
            server.kill()
            with pytest.raises(StorageUnavailableError) as caught:
                write(log, 1, "b")
            assert caught.value.retriable
            server.start()
            write(log, 1, "b")
            write(log, 2, "c")
            assert values(log) == ["a", "b", "c"]
    finally:
        server.kill()


def test_a_place_with_other_objects_becomes_no_home(s3: S3Server, url: str) -> None:
    from sparklog.tiered.target import open_store

    store = open_store(url, s3.options())
    store.put("t-0-AAAAAAAAAAAAAAAAAAAAAA/notes.txt", b"of somebody else")
    with pytest.raises(InvalidRequestError, match="log"):
        sparklog.open(url, mode="rw", storage_options=s3.options())
    assert [o.name for o in store.list()] == ["t-0-AAAAAAAAAAAAAAAAAAAAAA/notes.txt"]
