"""Each home that a log can be kept in: what the engine promises holds in all of them."""

import uuid
from pathlib import Path

import pytest


@pytest.fixture(params=["directory", "file", "memory"])
def log_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A log dir's path, or the URL of a log in a store; nothing is there yet."""
    if request.param == "directory":
        return str(tmp_path / "log")
    if request.param == "file":
        return f"file://{tmp_path}/bucket/log"
    return f"memory://{uuid.uuid4().hex}/log"
