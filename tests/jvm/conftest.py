"""A JVM for the tests of what runs in it."""

from collections.abc import Iterator

import pytest

from tests import jars
from tests.jvm.probe import Probe


@pytest.fixture(scope="session")
def probe() -> Iterator[Probe]:
    """Scala, by name; skips where no Java is."""
    with jars.or_skip("probe"):
        made = Probe()
    yield made
    made.close()
