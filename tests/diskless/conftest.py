"""Stores for the tests of logs in a store."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.testing.faultstore import Bucket, FaultStore
from tests.diskless.logs import Home


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh place in memory."""
    import fsspec

    yield "memory://" + re.sub(r"[^a-z0-9]", "-", request.node.name.lower())
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A place for a log in files."""
    return f"file://{tmp_path}/home"


@pytest.fixture
def bucket() -> Bucket:
    """The objects that several stores share."""
    return Bucket()


@pytest.fixture
def store() -> FaultStore:
    """A store with a bucket of its own."""
    return FaultStore()


@pytest.fixture
def home() -> Home:
    """A log with topic t of two partitions, whose service holds the lease."""
    found = Home()
    found.topic(partitions=2)
    return found.lead()
