"""The checkpoint manager as Spark calls it, one Spark session for all tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import build_session
from tests.state.manager import Manager, managers

__all__ = ["Manager", "managers"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """What modules here share; who moves the bytes of logs is nothing to them."""
    session = build_session()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that was just stopped lets go of its lock, however busy its JVM is."""
    monkeypatch.setattr("sparklog.checkpoint.log_backed.lock.RELEASE_MS", 60_000)


@pytest.fixture
def manager(managers: "managers") -> Manager:
    """A manager of a new checkpoint, whose directory it has made."""
    return managers("ckpt")
