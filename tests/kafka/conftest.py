"""The broker fixtures."""

from collections.abc import Iterator

import pytest

from tests import jars
from tests.kafka.broker import Broker
from tests.kafka.broker import broker as run_broker


@pytest.fixture(scope="module", params=["jars", "image"])
def broker(request, tmp_path_factory) -> Iterator[Broker]:
    """A running broker; tests that stop it start it again. Both kinds, each if it is to be had."""
    home = tmp_path_factory.mktemp("broker")
    try:
        running = run_broker(home, image=request.param == "image")
        made = running.__enter__()
    except jars.Unavailable as reason:
        pytest.skip(f"broker: {reason}")
    yield made
    running.__exit__(None, None, None)
