"""Stores for the tests of logs in a store."""

import re
from collections.abc import Iterator

import pytest


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh place in memory."""
    import fsspec

    yield "memory://" + re.sub(r"[^a-z0-9]", "-", request.node.name.lower())
    fsspec.filesystem("memory").store.clear()
