"""What an endpoint counts, and that it is among the log's metrics."""

import contextlib
import socket
import urllib.request

import pytest

import sparklog
from sparklog.kafka import Endpoint
from sparklog.kafka.credentials import SCRAM, ScramCredential
from sparklog.kafka.messages import Api
from sparklog.kafka.users import User, change_users, parse_rights
from sparklog.metrics import Meters, Sample
from sparklog.service import Service
from tests.kafka.wire import Wire
from tests.waiting import until


@pytest.fixture
def counted(monkeypatch):
    """The value of a metric with labels, of this test alone."""
    found = Meters()
    monkeypatch.setattr("sparklog.kafka.endpoint.meters", lambda home: found)

    def value(name: str, *labels: str) -> float:
        sums = [s for s in found.samples() if s.metric.name.endswith(name) and s.labels == labels]
        assert len(sums) <= 1
        return _number(sums[0]) if sums else 0

    return value


def _number(sample: Sample) -> float:
    return sample.value if isinstance(sample.value, float | int) else sample.value.count


@pytest.mark.sparklog(topics={"t": 1})
def test_requests_errors_bytes_and_connections(sparklog_log, counted):
    with Endpoint(sparklog_log) as endpoint:
        with Wire(endpoint) as wire:
            wire.ask(Api.METADATA, 1, topics=[{"name": "t"}, {"name": "no"}])
            assert counted("sparklog_kafka_connections") == 1
            wire.ask(Api.METADATA, 4, topics=None)
            assert counted("requests_total", "Metadata", "1") == 1
            assert counted("requests_total", "Metadata", "4") == 1
            assert counted("errors_total", "Metadata", "UNKNOWN_TOPIC_OR_PARTITION") == 1
            assert counted("errors_total", "Metadata", "NONE") >= 2
            assert counted("request_duration_seconds", "Metadata") == 2
            # An answer is counted once it is sent: the client may have it before.
            until(lambda: counted("sent_bytes_total") == wire.received_bytes)
            assert 0 < counted("received_bytes_total") < wire.received_bytes
        with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.settimeout(240)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
    assert counted("opened_connections_total") == 2
    assert counted("closed_connections_total", "protocol") == 1
    assert counted("sparklog_kafka_connections") == 0


@pytest.fixture
def options(tmp_path):
    """Of an endpoint where user al may log in and read."""
    path = str(tmp_path / "users.json")
    keys = {SCRAM[0]: ScramCredential.from_password(SCRAM[0], "pw", iterations=4096)}
    change_users(path, lambda users: users.update(al=User("al", parse_rights("read"), keys)))
    return {
        "sasl.users.location": path, "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "600000",
    }  # fmt: skip


@pytest.mark.sparklog(topics={"t": 1})
def test_who_came_in_who_did_not_and_what_nobody_had_a_right_to(sparklog_log, counted, options):
    with Endpoint(sparklog_log, options=options) as endpoint:
        with Wire(endpoint) as wire:
            assert wire.ask(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI") == {
                "error_code": 33, "mechanisms": ["PLAIN"]
            }  # fmt: skip
        with Wire(endpoint) as wire:
            wire.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            answer = wire.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0al\0wrong")
            assert (answer["error_code"], answer["error_message"]) == (
                58, "Authentication failed: Invalid username or password",
            )  # fmt: skip
            with pytest.raises(ConnectionError):
                wire.ask(Api.METADATA, 1)
        with Wire(endpoint) as wire:
            wire.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            answer = wire.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0al\0pw")
            assert (answer["error_code"], answer["session_lifetime"]) == (0, 600_000)
            answer = wire.ask(Api.CREATE_TOPICS, 2, topics=[{"name": "new"}], timeout=600_000)
            assert [each["error_code"] for each in answer["topics"]] == [29]
            assert wire.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"x")["error_code"] == 34
    assert counted("authentications_total", "ok") == 1
    assert counted("authentications_total", "failed") >= 1
    assert counted("unauthorized_requests_total", "CreateTopics") == 1
    assert counted("closed_connections_total", "authentication") == 3


@pytest.mark.sparklog(topics={"t": 1})
def test_a_session_that_is_over_is_closed_unless_it_is_renewed(sparklog_log, options):
    """KIP-368."""
    with Endpoint(sparklog_log, options=options) as endpoint, Wire(endpoint) as wire:

        def log_in():
            wire.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            answer = wire.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0al\0pw")
            assert (answer["error_code"], answer["session_lifetime"]) == (0, 600_000)

        log_in()
        (connection,) = endpoint._server._connections
        for _ in range(3):
            wire.ask(Api.METADATA, 1)
            connection.sasl._expires_ms = 0.0  # it is over
            log_in()
        connection.sasl._expires_ms = 0.0
        with pytest.raises(ConnectionError):
            wire.ask(Api.METADATA, 1)


@pytest.mark.sparklog(topics={"t": 1})
def test_tokens_alone_after_a_handshake_of_version_0(sparklog_log, tmp_path):
    path = str(tmp_path / "users.json")
    keys = {SCRAM[0]: ScramCredential.from_password(SCRAM[0], "pw", iterations=4096)}
    change_users(path, lambda users: users.update(al=User("al", parse_rights("read"), keys)))
    options = {"sasl.users.location": path, "sasl.enabled.mechanisms": "PLAIN"}
    with Endpoint(sparklog_log, options=options) as endpoint:
        for password, well in ((b"pw", True), (b"no", False)):
            with Wire(endpoint) as wire:
                wire.ask(Api.SASL_HANDSHAKE, 0, mechanism="PLAIN")
                token = b"\0al\0" + password
                wire._socket.sendall(len(token).to_bytes(4, "big") + token)
                if not well:
                    with pytest.raises((ConnectionError, OSError)):
                        wire._exactly(4)
                    continue
                assert wire._exactly(4) == bytes(4)  # an empty token is the answer
                assert wire.ask(Api.METADATA, 1, topics=[{"name": "t"}])["topics"]


def test_a_service_shows_what_the_endpoint_counts(tmp_path):
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    with (
        Service(str(path), metrics_port=0) as service,
        sparklog.open(path, "rw") as log,
        Endpoint(log) as endpoint,
        Wire(endpoint) as wire,
    ):
        wire.ask(Api.METADATA, 1)
        text = urllib.request.urlopen(service.metrics_url, timeout=240).read().decode()
    assert 'kafka_network_requestmetrics_requests_total{request="Metadata",version="1"} 1.0' in text
    assert "sparklog_kafka_connections 1.0" in text
