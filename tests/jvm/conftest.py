"""A JVM for the tests of what runs in it."""

from collections.abc import Iterator

import pytest

from tests import jars
from tests.jvm.probe import Probe


@pytest.fixture(scope="session")
def probe() -> Iterator[Probe]:
    """Scala, by name; skips where no Java is."""
    try:
        made = Probe()
    except jars.Unavailable as reason:
        pytest.skip(f"probe: {reason}")
    yield made
    made.close()
