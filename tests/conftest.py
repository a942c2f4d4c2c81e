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


# With `--dist loadgroup` a worker takes group after group, in the order of the tests. The long ones
# come first; what can be dealt out test by test comes last, so that no worker idles at the end.
FIRST = (
    "tests/spark/test_applications.py", "tests/spark/test_connect.py", "tests/spark/",
    "tests/kafka/", "tests/service/", "tests/oracle/",
)  # fmt: skip
SPREAD = (
    "tests/spark/test_applications.py", "tests/crash/test_every_cut.py",
    "tests/crash/test_tiering_seeds.py", "tests/crash/test_seeds.py",
)  # fmt: skip
ONE_SESSION = "tests/spark/"  # a Spark session and its warm JVM for all that isn't spread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests; those that share a Spark session, a broker or a JVM stay together."""

    def rank(item: pytest.Item) -> int:
        for place, prefix in enumerate(FIRST):
            if item.nodeid.startswith(prefix):
                return place
        return len(FIRST) + item.nodeid.startswith(SPREAD)

    for item in items:
        file = item.nodeid.partition("::")[0]
        if file not in SPREAD and item.get_closest_marker("xdist_group") is None:
            shared = ONE_SESSION if "spark" in getattr(item, "fixturenames", ()) else file
            item.add_marker(pytest.mark.xdist_group(shared))
    items.sort(key=rank)


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
