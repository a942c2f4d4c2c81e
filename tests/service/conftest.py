"""What tests of the service share."""

from pathlib import Path

import pytest

from tests.jars import Unavailable
from tests.promtool import promtool


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A log dir that is not made yet."""
    return str(tmp_path / "log")


@pytest.fixture(scope="module")
def judge() -> str:
    """promtool; skips with the reason where it can't be had."""
    try:
        return promtool()
    except Unavailable as reason:
        pytest.skip(str(reason))
