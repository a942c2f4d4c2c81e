"""An endpoint that asks who is there: real clients by each way, and what is refused."""

import contextlib
import os
import socket
import ssl
import threading

import confluent_kafka
import pytest
import trustme
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from sparklog.errors import InvalidRequestError
from sparklog.kafka import Endpoint
from sparklog.kafka.credentials import SCRAM, ScramCredential
from sparklog.kafka.users import User, change_users, parse_rights
from tests.waiting import until

USERS = {"reader": "read", "writer": "write", "alice": "read,write,admin", "nobody": ""}


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    """The files of an endpoint and of its clients, by the names of its options and theirs."""
    home = tmp_path_factory.mktemp("security")
    made = authority.issue_cert("localhost", "127.0.0.1")
    made.private_key_and_cert_chain_pem.write_to_path(home / "server.pem")
    os.chmod(home / "server.pem", 0o600)
    authority.cert_pem.write_to_path(home / "ca.pem")
    identity = authority.issue_cert("client@example.org", common_name="loader")
    identity.private_key_and_cert_chain_pem.write_to_path(home / "client.pem")

    def fill(users):
        for name, rights in USERS.items():
            keys = {
                m: ScramCredential.from_password(m, f"{name}-pw", iterations=4096) for m in SCRAM
            }
            users[name] = User(name, parse_rights(rights), keys)

    change_users(str(home / "users.json"), fill)
    return home


def _options(files, protocol, **more):
    found = {}
    if "SSL" in protocol:
        found["ssl.keystore.location"] = str(files / "server.pem")
    if "SASL" in protocol:
        found["sasl.users.location"] = str(files / "users.json")
        found["sasl.enabled.mechanisms"] = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"
    return found | more


def _client(endpoint, files, protocol, *, user="alice", mechanism="SCRAM-SHA-512", **more):
    found = {
        "bootstrap.servers": f"localhost:{endpoint.port}",
        "security.protocol": protocol,
        "broker.address.family": "v4",
        "socket.timeout.ms": 240_000,
        "log_level": 0,
    }
    if "SSL" in protocol:
        found["ssl.ca.location"] = str(files / "ca.pem")
    if "SASL" in protocol:
        found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": f"{user}-pw"}
    return found | more


def _topics(config, timeout=240):
    return set(AdminClient(config).list_topics(timeout=timeout).topics)


AUTHENTICATION = confluent_kafka.KafkaError._AUTHENTICATION
PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


@pytest.mark.sparklog(topics={"t": 1})
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_librdkafka_comes_in(sparklog_log, files, protocol, mechanism):
    if "SASL" not in protocol and mechanism != "PLAIN":
        pytest.skip("no mechanism without SASL")
    with Endpoint(sparklog_log, options=_options(files, protocol)) as endpoint:
        assert endpoint._server.security.protocol == protocol
        assert _topics(_client(endpoint, files, protocol, mechanism=mechanism)) == {"t"}


@pytest.mark.sparklog(topics={"t": 1})
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_listens_everywhere_only_if_it_is_safe(sparklog_log, files, protocol):
    options = _options(files, protocol, **{"advertised.listeners": "localhost:1"})
    insecure = {"listener.insecure": "true", "sasl.enabled.mechanisms": ",".join(SCRAM)}
    if protocol == "SASL_SSL":
        with Endpoint(sparklog_log, host="0.0.0.0", options=options) as endpoint:
            assert endpoint.bootstrap_servers == "localhost:1"
        return
    with pytest.raises(InvalidRequestError, match=r"reached from other hosts|unencrypted"):
        Endpoint(sparklog_log, host="0.0.0.0", options=options)
    Endpoint(sparklog_log, host="0.0.0.0", options=options | insecure).close()


@pytest.mark.sparklog(topics={"t": 1})
def test_a_wrong_password_is_said_to_be_one(sparklog_log, files, caplog):
    errors = []
    with Endpoint(sparklog_log, options=_options(files, "SASL_PLAINTEXT")) as endpoint:
        config = _client(endpoint, files, "SASL_PLAINTEXT", error_cb=errors.append)
        for more, why in (
            ({}, "invalid credentials with SASL mechanism SCRAM-SHA-512"),
            ({"sasl.mechanism": "PLAIN"}, "Invalid username or password"),
        ):
            errors.clear()
            admin = AdminClient(config | more | {"sasl.password": "not-hers"})
            with pytest.raises(confluent_kafka.KafkaException):
                admin.list_topics(timeout=1)

            def told(admin=admin, why=why):  # before or behind "1/1 brokers are down"
                admin.poll(0.1)
                said = [each.str() for each in errors if each.code() == AUTHENTICATION]
                return any(why in each for each in said)

            until(told, why, state=lambda: errors)
    assert "is closed: Authentication failed" in caplog.text
    assert "alice-pw" not in caplog.text and "not-hers" not in caplog.text


@pytest.mark.sparklog(topics={"t": 1})
def test_each_protocol_says_what_a_client_of_another_one_does_wrong(sparklog_log, files, caplog):
    def fails(endpoint, protocol, said):
        def told():  # a client that is given half a second may not have come that far
            with pytest.raises(confluent_kafka.KafkaException):
                _topics(_client(endpoint, files, protocol), timeout=0.5)
            return said in caplog.text

        until(told, said)

    with Endpoint(sparklog_log) as endpoint:
        fails(endpoint, "SSL", "the client uses TLS, which is not enabled here")
        assert "t" in _topics(_client(endpoint, files, "PLAINTEXT"))
    with Endpoint(sparklog_log, options=_options(files, "SASL_PLAINTEXT")) as endpoint:
        advice = "or set the client's security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        fails(endpoint, "SASL_SSL", advice)
        assert "t" in _topics(_client(endpoint, files, "SASL_PLAINTEXT"))
    with Endpoint(sparklog_log, options=_options(files, "SSL")) as endpoint:
        fails(endpoint, "PLAINTEXT", "the client does not use TLS 1.2 or later")
        assert "t" in _topics(_client(endpoint, files, "SSL"))
        with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            until(lambda: "the client uses HTTP; this port serves Kafka's protocol" in caplog.text)
    with Endpoint(sparklog_log, options=_options(files, "SASL_PLAINTEXT")) as endpoint:
        fails(endpoint, "PLAINTEXT", "METADATA before it authenticated")


@pytest.mark.sparklog(topics={"t": 1})
def test_a_client_is_known_by_its_certificate(sparklog_log, files, tmp_path):
    options = _options(
        files, "SSL", **{"ssl.client.auth": "required", "ssl.ca.location": str(files / "ca.pem")}
    )
    certificate = str(files / "client.pem")
    shown = {"ssl.certificate.location": certificate, "ssl.key.location": certificate}
    with Endpoint(sparklog_log, options=options) as endpoint:
        assert _topics(_client(endpoint, files, "SSL", **shown)) == {"t"}
        with pytest.raises(confluent_kafka.KafkaException):
            _topics(_client(endpoint, files, "SSL"), timeout=0.5)
    named = str(tmp_path / "named.json")
    change_users(named, lambda users: users.update(x=User("x", parse_rights("read"), {})))
    with Endpoint(
        sparklog_log,
        options=options | {"sasl.users.location": named, "sasl.enabled.mechanisms": ""},
    ) as endpoint:
        config = _client(endpoint, files, "SSL", **shown)
        with pytest.raises(confluent_kafka.KafkaException):
            _topics(config, timeout=0.5)  # the file knows no such certificate

        def name(users):
            (subject,) = names - {"ANONYMOUS"}
            users[subject] = User(subject, parse_rights("read"), {})

        names = set()
        opened = endpoint._server.meters.refused
        endpoint._server.meters.refused = lambda api: (
            names.update(c.principal.removeprefix("User:") for c in endpoint._server._connections),
            opened(api),
        )

        def refused():
            with pytest.raises(confluent_kafka.KafkaException):
                _topics(config, timeout=0.5)
            return names - {"ANONYMOUS"}  # one whose handshake isn't over

        until(refused)
        change_users(named, name)
        endpoint._server.security.refresh()
        assert _topics(config) == {"t"}


@pytest.mark.sparklog(topics={"t": 1})
def test_rights(sparklog_log, files):
    """A reader changes nothing, a writer reads nothing; each is told so by Kafka's codes."""
    with Endpoint(sparklog_log, options=_options(files, "SASL_PLAINTEXT")) as endpoint:

        def admin(user):
            return AdminClient(_client(endpoint, files, "SASL_PLAINTEXT", user=user))

        for user in ("reader", "writer"):
            assert set(admin(user).list_topics(timeout=240).topics) == {"t"}
            held = admin(user)
            for future in (
                *held.create_topics([NewTopic("new", 1, 1)]).values(),
                *held.delete_topics(["t"]).values(),
                *held.delete_records([confluent_kafka.TopicPartition("t", 0, 0)]).values(),
            ):
                with pytest.raises(confluent_kafka.KafkaException) as refused:
                    future.result(240)
                assert refused.value.args[0].code() == (
                    confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
                )
        with pytest.raises(confluent_kafka.KafkaException):
            admin("nobody").list_topics(timeout=1)
        held = admin("alice")
        for future in held.create_topics([NewTopic("new", 1, 1)]).values():
            future.result(240)
        resource = ConfigResource(ResourceType.TOPIC, "t")
        assert held.describe_configs([resource])[resource].result(240)


@pytest.mark.sparklog(topics={"t": 1})
def test_a_renewed_certificate_is_shown_to_those_who_come_then(sparklog_log, files, authority):
    own = files / "renewed.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(own)
    os.chmod(own, 0o600)

    def serial():
        context = ssl.create_default_context(cafile=str(files / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", endpoint.port)) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as client,
        ):
            return client.getpeercert()["serialNumber"]

    with Endpoint(sparklog_log, options={"ssl.certificate.location": str(own)}) as endpoint:
        first = serial()
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(own)
        endpoint._server.security.refresh()
        assert serial() != first


@pytest.mark.sparklog(topics={"t": 1})
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_on_every_address_a_client_is_told_the_one_that_it_came_by(sparklog_log, files, protocol):
    if protocol == "SSL":
        with pytest.raises(InvalidRequestError, match=r"advertised.listeners=NAME:PORT"):
            options = _options(files, "SASL_SSL")
            Endpoint(sparklog_log, host="0.0.0.0", options=options)
        return
    with Endpoint(sparklog_log, host="0.0.0.0", options={"listener.insecure": "true"}) as endpoint:
        for host in ("127.0.0.1", "127.0.0.2"):
            config = {"bootstrap.servers": f"{host}:{endpoint.port}", "log_level": 0}
            found = AdminClient(config).list_topics(timeout=240)
            assert [b.host for b in found.brokers.values()] == [host]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "set sasl.users.location=FILE"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "expected a list of SCRAM-SHA-256"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth: TLS requires a certificate; set"),
        ({"ssl.key.location": "k"}, "ssl.key.location: TLS requires a certificate; set"),
        ({"ssl.keystore.location": "no.pem"}, "=no.pem: the file does not exist"),
        ({"sasl.users.location": "no.json"}, "no.json: no such users' file"),
        ({"advertised.listeners": "9092"}, "must be the single HOST:PORT"),
    ],
)
def test_options_that_can_not_be(sparklog_log, options, said):
    before = set(threading.enumerate())
    with pytest.raises(InvalidRequestError, match=said):
        Endpoint(sparklog_log, options=options)
    assert not set(threading.enumerate()) - before


def test_a_password_is_in_no_repr(sparklog_log):
    from sparklog.kafka.options import EndpointOptions

    assert "hunter2" not in repr(EndpointOptions.parse({"ssl.key.password": "hunter2"}))


def test_what_is_left_open_is_closed_with_the_endpoint(sparklog_log, files):
    with contextlib.ExitStack() as stack:
        with Endpoint(sparklog_log, options=_options(files, "SSL")) as endpoint:
            for _ in range(3):  # in the midst of their handshakes
                stack.enter_context(socket.create_connection(("127.0.0.1", endpoint.port)))
            until(lambda: endpoint._server.quotas.count == 3)
        assert endpoint._server.quotas.count == 0
