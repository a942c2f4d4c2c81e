"""Fixtures that several parts of the suite share."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from sparklog.clock import ManualClock
from tests import jars
from tests.oracle import Oracle

# Timings of a busy machine are no failures; a failing example is printed and can be replayed.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


# Long and independent of each other: with `--dist loadgroup` they spread over the workers test by
# test. All others stay together by file, for they share a Spark session, a broker, a JVM.
SPREAD = ("tests/crash/test_seeds.py", "tests/crash/test_every_cut.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        file = item.nodeid.partition("::")[0]
        if file not in SPREAD:
            item.add_marker(pytest.mark.xdist_group(file))


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's own storage code; skips where no JDK is, or Maven can't bring the jars."""
    try:
        judge = Oracle()
    except jars.Unavailable as reason:
        pytest.skip(f"oracle: {reason}")
    yield judge
    judge.close()


@pytest.fixture(scope="session")
def kafka_connector_jars() -> list[str]:
    """The jars of Spark's Kafka connector, for `spark.jars`; skips where Maven can't bring them."""
    try:
        return jars.connector_jars()
    except jars.Unavailable as reason:
        pytest.skip(f"Kafka connector: {reason}")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test turns."""
    return ManualClock()
