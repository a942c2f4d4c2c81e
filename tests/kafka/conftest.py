"""The broker fixtures, and a check of what the endpoint answers."""

from collections.abc import Iterator

import pytest

from sparklog import Log
from sparklog.kafka import Endpoint, connection
from sparklog.kafka.codec import Buffer
from sparklog.kafka.messages import Answer, Encoded, Request, unknown_names
from tests import jars
from tests.kafka.broker import Broker
from tests.kafka.broker import broker as run_broker
from tests.kafka.wire import Wire


@pytest.fixture(scope="module", params=["jars", "image"])
def broker(request, tmp_path_factory) -> Iterator[Broker]:
    """A running broker; tests that stop it start it again. Both kinds, each if it is to be had."""
    home = tmp_path_factory.mktemp("broker")
    with jars.or_skip("broker"):
        running = run_broker(home, image=request.param == "image")
        made = running.__enter__()
    yield made
    running.__exit__(None, None, None)


@pytest.fixture
def endpoint(log: Log) -> Iterator[Endpoint]:
    """An endpoint of the log of a file of tests."""
    with Endpoint(log) as found:
        yield found


@pytest.fixture
def wire(endpoint: Endpoint) -> Iterator[Wire]:
    """A connection to the endpoint, which may be another one than the above."""
    with Wire(endpoint) as found:
        yield found


@pytest.fixture(autouse=True)
def no_slips_in_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a response with a key that no version of it has: an answer that clients never get."""
    encode = connection.encode

    def checked(request: Request, response: Answer) -> list[Buffer]:
        assert isinstance(response, Encoded) or unknown_names(request.api, response) == []
        return encode(request, response)

    monkeypatch.setattr(connection, "encode", checked)
