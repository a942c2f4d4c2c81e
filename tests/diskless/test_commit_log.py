"""Commits to a log in a store: the contract, what they cost, races, answers that don't come."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.clock import system_clock
from sparklog.config import LogOptions
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.log.admin import create_topic
from sparklog.log.commit import Identity, commit
from sparklog.storage.commits import CommitLog
from sparklog.testing.commits_contract import CommitLogContract, chunk
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

LOG_ID = "log"


def opened(store: Store, retry_policy: RetryPolicy | None = None) -> DisklessCommits:
    head = Head(EntryReader(store, LOG_ID))
    return DisklessCommits(
        store.url, head, LogOptions(), system_clock, retry_policy or RetryPolicy(timeout_ms=2000)
    )


class TestFiles(CommitLogContract):
    @pytest.fixture
    def open_commits(self, tmp_path: Path) -> Callable[[], CommitLog]:
        return lambda: opened(open_store(f"file://{tmp_path}"))


class TestMemory(CommitLogContract):
    @pytest.fixture
    def open_commits(self, memory_url: str) -> Callable[[], CommitLog]:
        return lambda: opened(open_store(memory_url))


@pytest.fixture
def memory_url(request: pytest.FixtureRequest) -> Iterator[str]:
    import fsspec

    url = f"memory://{request.node.name}"
    yield url
    fsspec.filesystem("memory").store.clear()


def test_a_small_commit_is_one_put_and_nothing_else(memory_url: str) -> None:
    store = open_store(memory_url)
    commits = opened(store)
    create_topic(commits, "t", 2, {}, False)
    before = store.counts.as_dict()
    for batch in range(3):
        identity = Identity(writer="w", batch=batch, fingerprint="f")
        commit(commits, [chunk(commits, 1), chunk(commits, 2, partition=1)], identity=identity)
    after = store.counts.as_dict()
    assert after["puts"] - before["puts"] == 3
    assert {k: after[k] - before[k] for k in ("gets", "lists", "deletes")} == dict.fromkeys(
        ("gets", "lists", "deletes"), 0
    )
