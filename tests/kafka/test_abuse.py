"""Clients that misbehave: each is disconnected with a line in the log, and hurts nobody else."""

import contextlib
import logging
import os
import resource
import socket
import struct
import threading
import time

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from sparklog.kafka import Endpoint, quotas
from sparklog.kafka.credentials import SCRAM, ScramCredential
from sparklog.kafka.users import ALL, User, change_users
from tests.waiting import until

MIB = 1 << 20
QUICK = {"connections.setup.timeout.ms": "1500"}
API_VERSIONS = bytes.fromhex("0000000e 0012 0000 00000001 0004 74657374".replace(" ", ""))
METADATA_ALL = struct.pack(">ihhihi", 14, 3, 1, 7, -1, -1)
pytestmark = pytest.mark.sparklog(topics={"t": 1})


def _connect(endpoint, receive_bytes=None):
    made = socket.socket()
    if receive_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.settimeout(240)
    made.connect(("127.0.0.1", endpoint.port))
    return made


def _is_closed(client):
    with contextlib.suppress(ConnectionError):
        while client.recv(1 << 16):
            pass
    return True


def _answer(client):
    size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
    return client.recv(size, socket.MSG_WAITALL)


def _works(endpoint):
    found = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers}).list_topics(timeout=240)
    return set(found.topics) == {"t"}


def _lines(caplog):
    return [r.getMessage() for r in caplog.records if "is closed" in r.getMessage()]


def test_a_byte_a_second(sparklog_log, caplog):
    with Endpoint(sparklog_log, options=QUICK) as endpoint, _connect(endpoint) as client:
        client.sendall(b"\0\0\1\0")
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                client.sendall(b"\0")
                time.sleep(0.1)
        assert _is_closed(client) and _works(endpoint)
    assert [line for line in _lines(caplog) if "was not complete after 1500 ms" in line]


def test_nothing_at_all(sparklog_log, caplog):
    caplog.set_level(logging.INFO, "sparklog.kafka")
    with Endpoint(sparklog_log) as endpoint, _connect(endpoint) as client:
        client.sendall(API_VERSIONS)
        assert _answer(client)
        object.__setattr__(endpoint._server.options, "connections_max_idle_ms", 1000)
        assert _is_closed(client)
    assert [line for line in _lines(caplog) if "connections.max.idle.ms" in line]


def test_who_does_not_authenticate(sparklog_log, caplog, tmp_path):
    path = str(tmp_path / "users.json")
    keys = {SCRAM[0]: ScramCredential.from_password(SCRAM[0], "x", iterations=4096)}
    change_users(path, lambda users: users.update(a=User("a", ALL, keys)))
    users = {"sasl.users.location": path}
    with Endpoint(sparklog_log, options=QUICK | users) as endpoint, _connect(endpoint) as client:
        with contextlib.suppress(ConnectionError):  # it may be closed by now
            for _ in range(3):  # no answer puts the end off
                client.sendall(API_VERSIONS)
        assert _is_closed(client)
        assert "the client did not authenticate in time" in caplog.text
    with Endpoint(sparklog_log, options=users) as endpoint:
        with _connect(endpoint) as client:
            client.sendall(METADATA_ALL)
            assert _is_closed(client)
        assert "METADATA before it authenticated" in caplog.text
        with _connect(endpoint) as client:
            client.sendall(struct.pack(">i", 600 << 10))
            assert _is_closed(client)
        assert f"a request has {600 << 10} bytes; at most {512 << 10} are allowed" in caplog.text


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "the client uses HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "the client uses TLS"),
        (struct.pack(">i", -1), "a request has -1 bytes"),
        (struct.pack(">i", 0), "a request has 0 bytes"),
        (struct.pack(">i", (100 << 20) + 1), "bytes; at most 104857600 are allowed"),
        (struct.pack(">ihhi", 8, 999, 0, 1), "API key 999 version 0 is not supported"),
        (struct.pack(">ihhi", 8, 3, 99, 1), "API key 3 version 99 is not supported"),
        (struct.pack(">ihh", 4, 3, 1), "more at byte"),
    ],
)
def test_what_is_no_request(sparklog_log, caplog, sent, said):
    with Endpoint(sparklog_log) as endpoint:
        with _connect(endpoint) as client:
            client.sendall(sent)
            assert _is_closed(client)
        assert _works(endpoint)
    assert len([line for line in _lines(caplog) if said in line]) == 1


def test_a_thousand_of_them_leave_twenty_lines(sparklog_log, caplog, monkeypatch):
    monkeypatch.setattr(quotas, "monotonic_ms", lambda: 1_000_000.0)  # all in one ten seconds
    with Endpoint(sparklog_log) as endpoint:
        for _ in range(1000):
            with _connect(endpoint) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert _is_closed(client)
        assert _works(endpoint)
        closed = {labels: v for _, labels, v in endpoint._server.meters._closed.samples()}
        assert closed["protocol",] == 1000
    assert len(_lines(caplog)) == 20


def test_a_client_that_closes_its_side_gets_its_answers(sparklog_log):
    with Endpoint(sparklog_log) as endpoint, _connect(endpoint) as client:
        client.sendall(API_VERSIONS)
        client.shutdown(socket.SHUT_WR)
        assert _answer(client)[:4] == b"\0\0\0\1"
        assert client.recv(1) == b""


def test_as_many_connections_as_there_may_be(sparklog_log, caplog):
    options = {"max.connections": "50", "max.connections.per.ip": "40"}
    with Endpoint(sparklog_log, options=options) as endpoint, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(_connect(endpoint)) for _ in range(40)]
        for client in clients:
            client.sendall(API_VERSIONS)
            assert _answer(client)
        with _connect(endpoint) as client:
            assert _is_closed(client)
        assert "the address has 40 connections already (max.connections.per.ip)" in caplog.text
        for client in clients[:10]:
            client.close()
        until(lambda: endpoint._server.quotas.count == 30)
        assert _works(endpoint)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_thousand_connections_that_never_speak(sparklog_log, tmp_path, protocol):
    """Memory and other clients stand it; all are closed in time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    options = {"max.connections": "1500", "connections.setup.timeout.ms": "600000"}
    if protocol == "SSL":
        import trustme

        made = trustme.CA().issue_cert("localhost")
        made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
        os.chmod(tmp_path / "server.pem", 0o600)
        options["ssl.keystore.location"] = str(tmp_path / "server.pem")
    try:
        with Endpoint(sparklog_log, options=options) as endpoint, contextlib.ExitStack() as stack:
            before = psutil.Process().memory_info().rss
            for _ in range(1000):
                stack.enter_context(_connect(endpoint))
            until(lambda: endpoint._server.quotas.count == 1000)
            took = psutil.Process().memory_info().rss - before
            print(f"{protocol}: {took / MIB:.0f} MiB for 1000 connections")
            assert took < 400 * MIB
            if protocol == "PLAINTEXT":
                assert _works(endpoint)
                object.__setattr__(endpoint._server.options, "connections_max_idle_ms", 500)
                until(lambda: endpoint._server.quotas.count < 5)
        assert endpoint._server.quotas.count == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _large(size):
    """The beginning of a request of `size` bytes: Metadata 1 of one long list of names."""
    return struct.pack(">ihhih", size, 3, 1, 7, -1)


def test_many_large_requests_share_the_memory_for_them(sparklog_log):
    """100 clients announce and send 64 MiB each; 64 MiB are there for all."""
    options = {"queued.max.request.bytes": str(64 * MIB), "connections.setup.timeout.ms": "600000"}
    before = psutil.Process().memory_info().rss
    peak = [before]
    stop = threading.Event()

    def watch():
        while not stop.wait(0.02):
            peak[0] = max(peak[0], psutil.Process().memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with Endpoint(sparklog_log, options=options) as endpoint, contextlib.ExitStack() as stack:
            chunk = bytes(1 * MIB)
            clients = [stack.enter_context(_connect(endpoint)) for _ in range(100)]
            for client in clients:
                client.sendall(_large(64 * MIB))
                client.setblocking(False)
            for _ in range(63):
                for client in clients:
                    with contextlib.suppress(BlockingIOError, ConnectionError):
                        client.send(chunk)
            memory = endpoint._server.request_memory
            until(lambda: (memory.used, memory.waiting) == (64 * MIB, 99))
            assert _works(endpoint)
        assert (memory.used, memory.waiting) == (0, 0)
    finally:
        stop.set()
        watcher.join()
    # Kernel buffers aren't ours; each that waits holds what came with its first piece.
    assert peak[0] - before < 64 * MIB + 100 * 300 * 1024 + 64 * MIB


def test_those_who_wait_for_memory_get_it_in_turn(sparklog_log):
    """A request of three names, 40 KiB apart from what is free, is answered when it is its turn."""
    names = [b"x" * 30_000 for _ in range(3)]
    body = struct.pack(">hhihi", 3, 1, 7, -1, 3) + b"".join(
        struct.pack(">h", len(name)) + name for name in names
    )
    options = {"queued.max.request.bytes": str(1 * MIB), "connections.setup.timeout.ms": "600000"}
    with Endpoint(sparklog_log, options=options) as endpoint, contextlib.ExitStack() as stack:
        blocker = _connect(endpoint)
        blocker.sendall(_large(1 * MIB))
        until(lambda: endpoint._server.request_memory.used == 1 * MIB)
        clients = [stack.enter_context(_connect(endpoint)) for _ in range(5)]
        frame = struct.pack(">i", len(body)) + body
        for client in clients:
            client.sendall(frame[:1000])
        until(lambda: endpoint._server.request_memory.waiting == 5)
        blocker.close()
        for client in clients:
            client.sendall(frame[1000:])
        for client in clients:
            assert _answer(client)[:4] == struct.pack(">i", 7)
        until(lambda: endpoint._server.request_memory.used == 0)


def test_who_takes_no_answers_holds_no_memory(sparklog_log, caplog, monkeypatch):
    """Clients ask and ask, and read nothing: one answer each is kept, then they are let go."""
    from sparklog.kafka import connection
    from sparklog.kafka import endpoint as module

    monkeypatch.setattr(module, "STALLED_MS", 3_600_000)
    monkeypatch.setattr(connection, "PIECE_BYTES", 4096)
    for number in range(300):  # in an answer of 35 KB
        sparklog_log.create_topic(f"a-topic-with-a-name-of-some-length-{number:04d}" * 3)
    options = {"queued.max.response.bytes": str(1 * MIB)}
    with Endpoint(sparklog_log, options=options) as endpoint, contextlib.ExitStack() as stack:
        endpoint._server._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(60):
            stack.enter_context(_connect(endpoint, 2048)).sendall(METADATA_ALL)
        until(lambda: endpoint._server.outgoing_bytes > 1 * MIB)
        monkeypatch.setattr(module, "STALLED_MS", 1500)
        until(lambda: endpoint._server.outgoing_bytes <= 1 * MIB)
        admin = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        assert len(admin.list_topics(timeout=240).topics) == 301
    assert endpoint._server.outgoing_bytes == 0
