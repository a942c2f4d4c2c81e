"""What tests of the service share."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A log dir that is not made yet."""
    return str(tmp_path / "log")
