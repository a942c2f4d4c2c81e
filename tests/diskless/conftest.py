"""Stores for the tests of logs in a store."""

import re
from collections.abc import Iterator

import pytest

from tests.diskless.logs import Home


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh place in memory."""
    import fsspec

    yield "memory://" + re.sub(r"[^a-z0-9]", "-", request.node.name.lower())
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def home() -> Home:
    """A log with topic t of two partitions, whose service holds the lease."""
    found = Home()
    found.topic(partitions=2)
    return found.lead()
