"""Addresses as people write them, who may listen where, and the sockets."""

import errno
import socket

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.kafka.credentials import SCRAM, Mechanism
from sparklog.kafka.listeners import (
    check_advertised,
    check_listener,
    listen,
    parse_address,
    parse_advertised,
)
from sparklog.network.addresses import Address, is_loopback, is_wildcard, resolve

PLAIN = Mechanism.PLAIN


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9092", "127.0.0.1", 9092),
        (" 9092 ", "127.0.0.1", 9092),
        ("0", "127.0.0.1", 0),
        ("localhost:9092", "localhost", 9092),
        ("127.0.0.1:65535", "127.0.0.1", 65535),
        ("[::1]:9092", "::1", 9092),
        ("[::]:9092", "::", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("0.0.0.0:9092", "0.0.0.0", 9092),
        ("log.example.org:19092", "log.example.org", 19092),
    ],
)
def test_an_address(text, host, port):
    found = parse_address(text)
    assert (found.host, found.port) == (host, port)
    assert parse_address(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["", ":9092", "localhost", "localhost:", "::1", "::1:9092", "[::1]", "[localhost]:1", "[]:1",
     "65536", "-1", "+1", "1e3", "h:65536", "\u0661", "localhost:9092:1"],
)  # fmt: skip
def test_what_is_no_address_is_told_how_one_looks(text):
    with pytest.raises(InvalidRequestError, match=r"use PORT or HOST:PORT.*\[::1\]:9092"):
        parse_address(text)


def test_kafkas_own_form_is_answered():
    with pytest.raises(InvalidRequestError, match=r"leave out SASL_SSL://.*ssl.keystore.location"):
        parse_address("SASL_SSL://0.0.0.0:9092")


@pytest.mark.parametrize("text", ["log.example.org:9093", "SASL_SSL://log.example.org:9093"])
def test_what_clients_are_told(text):
    assert parse_advertised(text) == Address("log.example.org", 9093)
    assert parse_advertised("") is None


@pytest.mark.parametrize("text", ["9092", "0.0.0.0:9092", "[::]:9092", "host:0", "host"])
def test_what_clients_can_not_connect_to(text):
    with pytest.raises(InvalidRequestError, match=r"advertised.listeners"):
        parse_advertised(text)


@pytest.mark.parametrize(
    ("addresses", "is_so"),
    [
        (["127.0.0.1"], True),
        (["127.255.0.7"], True),
        (["::1"], True),
        (["127.0.0.1", "::1"], True),
        (["::ffff:127.0.0.1"], True),
        (["::ffff:10.0.0.1"], False),
        (["127.0.0.1", "10.0.0.1"], False),  # a name that is both
        (["0.0.0.0"], False),
        (["::"], False),
        (["fe80::1%lo"], False),
        (["169.254.0.1"], False),
    ],
)
def test_loopback_is_what_only_this_host_reaches(addresses, is_so):
    assert is_loopback(addresses) is is_so


def _check(addresses, *, tls=False, certificates=False, mechanisms=(), insecure=False):
    check_listener(
        Address("h", 9092), addresses, tls=tls, client_certificates=certificates,
        mechanisms=mechanisms, insecure=insecure,
    )  # fmt: skip


def test_anything_goes_on_loopback():
    _check(["127.0.0.1", "::1"])
    _check(["127.0.0.1"], mechanisms=[PLAIN])


@pytest.mark.parametrize("given", [
    {"tls": True, "mechanisms": SCRAM},
    {"tls": True, "mechanisms": [PLAIN]},
    {"tls": True, "certificates": True},
    {"insecure": True},
    {"insecure": True, "tls": True},
    {"insecure": True, "mechanisms": SCRAM},
])  # fmt: skip
def test_elsewhere_with_tls_and_a_name_or_knowingly(given):
    _check(["10.0.0.1"], **given)


@pytest.mark.parametrize(
    ("given", "said", "unsaid"),
    [
        ({}, ("ssl.keystore.location", "sasl.users.location", "kafka-users", "ssl.client.auth",
              "insecure=true", "127.0.0.1"), ()),
        ({"tls": True}, ("sasl.users.location", "insecure=true"), ("ssl.keystore",)),
        ({"mechanisms": SCRAM}, ("ssl.keystore.location", "eavesdrop"), ("sasl.users",)),
        ({"mechanisms": [PLAIN]}, ("passwords unencrypted", "SCRAM"), ("insecure",)),
        ({"mechanisms": [PLAIN, *SCRAM], "insecure": True}, ("passwords unencrypted",), ()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("addresses", [["0.0.0.0"], ["::"], ["127.0.0.1", "192.168.0.1"]])
def test_elsewhere_is_refused_with_the_options_that_are_missing(addresses, given, said, unsaid):
    with pytest.raises(InvalidRequestError) as refused:
        _check(addresses, **given)
    assert all(word in str(refused.value) for word in said)
    assert not any(word in str(refused.value) for word in unsaid)


def test_clients_need_a_name_for_the_certificate():
    everywhere = Address("0.0.0.0", 9092)
    with pytest.raises(InvalidRequestError, match=r"advertised.listeners=NAME:PORT"):
        check_advertised(everywhere, None, tls=True)
    check_advertised(everywhere, None, tls=False)
    check_advertised(everywhere, Address("h", 1), tls=True)
    check_advertised(Address("h", 1), None, tls=True)
    assert is_wildcard(Address("::", 1)) and not is_wildcard(Address("::1", 1))


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _connects(host, port):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
        return client.connect_ex((host, port)) == 0


def test_localhost_is_all_that_it_resolves_to():
    assert {"127.0.0.1"} <= set(resolve("localhost")) <= {"127.0.0.1", "::1"}
    with pytest.raises(InvalidRequestError, match="can't be resolved"):
        resolve("no-such-host.invalid")
    with pytest.raises(InvalidRequestError):
        resolve("x" * 300)


def test_port_0_is_the_same_free_port_on_each_address():
    both = ["127.0.0.1", "127.0.0.2"]
    sockets = listen(Address("h", 0), both)
    try:
        ports = {each.getsockname()[1] for each in sockets}
        assert len(sockets) == 2 and len(ports) == 1
        assert all(_connects(host, *ports) for host in both)
    finally:
        for each in sockets:
            each.close()


def test_an_address_that_isnt_there_is_left_out_unless_it_is_the_only_one():
    (only,) = listen(Address("h", 0), ["192.0.2.1", "127.0.0.1"])
    only.close()
    with pytest.raises(InvalidRequestError, match="this host does not have the address"):
        listen(Address("192.0.2.1", 0), ["192.0.2.1"])


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 on this host")
def test_ipv6_and_its_wildcard_takes_ipv4_too():
    for host, reached in (("::1", ["::1"]), ("::", ["::1", "127.0.0.1"])):
        (found,) = listen(Address(host, 0), [host])
        port = found.getsockname()[1]
        assert all(_connects(each, port) for each in reached)
        found.close()


def test_a_port_that_is_taken():
    (first,) = listen(Address("127.0.0.1", 0), ["127.0.0.1"])
    address = Address("127.0.0.1", first.getsockname()[1])
    with pytest.raises(InvalidRequestError, match=f"can't listen on {address}.*another process"):
        listen(address, ["127.0.0.2", "127.0.0.1"])
    assert not _connects("127.0.0.2", address.port)  # nothing stays behind
    (other,) = listen(Address("127.0.0.1", 0), ["127.0.0.1"])
    assert _connects("127.0.0.1", other.getsockname()[1])
    other.close()
    first.close()


def test_a_port_that_is_roots(monkeypatch):
    def refuse(*args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(InvalidRequestError, match="below 1024 require root"):
        listen(Address("127.0.0.1", 92), ["127.0.0.1"])
