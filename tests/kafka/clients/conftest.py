"""Clients by name, and what they talk to; one of each for all tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests import jars
from tests.kafka.clients import java, libraries, programs
from tests.kafka.clients.client import Client
from tests.kafka.clients.servers import Ours, Server, Theirs, ours, ours_of_golden, theirs

LIBRARIES: Final[dict[str, type[Client]]] = {
    each.name: each
    for each in (
        libraries.Confluent, libraries.KafkaPython, libraries.AioKafka, programs.FranzGo,
        programs.KafkaGo, programs.Sarama, programs.KafkaJS, programs.Platformatic, programs.Kcat,
    )
}  # fmt: skip
OF_JAVA: Final[dict[str, Callable[[java.ClientJvm], Client]]] = {
    each.name: each for each in (java.Java, java.Console)
}
NAMES: Final = (*LIBRARIES, *OF_JAVA)
GO: Final = tuple(each.name for each in (programs.FranzGo, programs.KafkaGo, programs.Sarama))
SLOW: Final = (*GO, "platformatic", "console", "kcat")  # Go's take a minute to be built
SERVERS: Final = ("endpoint", pytest.param("broker", marks=pytest.mark.slow))
QUICK: Final = ("confluent-kafka", "aiokafka", "java")


@pytest.fixture(scope="package")
def jvm() -> Iterator[java.ClientJvm]:
    """The JVM with Kafka's own clients; skips where it can't be had."""
    with jars.or_skip("Kafka's clients"):
        made = java.ClientJvm()
    yield made
    made.close()


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.deep) if name in SLOW else name for name in NAMES]
)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn; skips with the reason where one can't be had."""
    return _client(request)


@pytest.fixture(
    params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.deep) for name in NAMES]
)
def quick_client(request: pytest.FixtureRequest) -> Client:
    """As `client`; in the small suite only some, for what the others read is told by `client`."""
    return _client(request)


def _client(request: pytest.FixtureRequest) -> Client:
    name = request.param
    if name in OF_JAVA:
        return OF_JAVA[name](request.getfixturevalue("jvm"))
    made = LIBRARIES[name]()
    with jars.or_skip(name):
        made.prepare()
    return made


@pytest.fixture(scope="package")
def real_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    """A broker with the golden partitions."""
    running = theirs(tmp_path_factory.mktemp("broker"))
    with jars.or_skip("broker"):
        made = running.__enter__()
    yield made
    running.__exit__(None, None, None)


@pytest.fixture(scope="package")
def endpoint_of_golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    """An endpoint on the golden partitions, opened for reading."""
    with ours_of_golden(tmp_path_factory.mktemp("golden")) as made:
        yield made


@pytest.fixture(scope="package")
def endpoint_of_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    """An endpoint on a log of our own."""
    with ours(tmp_path_factory.mktemp("ours")) as made:
        yield made


@pytest.fixture(params=SERVERS)
def golden_server(request: pytest.FixtureRequest) -> Server:
    """What has the golden partitions: our endpoint, and where there is time a broker."""
    name = {"endpoint": "endpoint_of_golden", "broker": "real_broker"}[request.param]
    return request.getfixturevalue(name)  # type: ignore[no-any-return]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """What takes topics and records: our endpoint, and where there is time a broker."""
    name = {"endpoint": "endpoint_of_ours", "broker": "real_broker"}[request.param]
    return request.getfixturevalue(name)  # type: ignore[no-any-return]
