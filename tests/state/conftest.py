"""The checkpoint manager as Spark calls it, one Spark session for all tests."""

import pytest

from tests.spark.conftest import moved_by, movers, spark
from tests.state.manager import Manager, managers

__all__ = ["Manager", "managers", "moved_by", "movers", "spark"]


@pytest.fixture
def manager(managers: "managers") -> Manager:
    """A manager of a new checkpoint, whose directory it has made."""
    return managers("ckpt")
