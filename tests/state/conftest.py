"""The checkpoint manager as Spark calls it, one Spark session for all tests."""

import pytest

from tests.spark.conftest import spark
from tests.state.manager import Manager, managers

__all__ = ["Manager", "managers", "spark"]


@pytest.fixture
def manager(managers: "managers") -> Manager:
    """A manager of a new checkpoint, whose directory it has made."""
    return managers("ckpt")
