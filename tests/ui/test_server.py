"""The live page over HTTP: what it answers, whom, and that it ends and waits for nobody."""

import contextlib
import http.client
import json
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.network.addresses import Address
from sparklog.ui import server
from sparklog.ui.access import parse_ui_address
from sparklog.ui.report.model import LogReport
from sparklog.ui.server import LiveServer
from sparklog.ui.site import LogSite
from tests.ui import UNHURRIED
from tests.ui.page_text import checked
from tests.ui.test_report_page import large
from tests.waiting import until

LARGE = b"x" * (64 << 20)
REPORT = large(topics=2, partitions=2, segments=3)
HERE = Address("127.0.0.1", 0)


@pytest.fixture
def live() -> Iterator[LiveServer]:
    with LiveServer(LogSite(lambda: REPORT), HERE, head_ms=UNHURRIED) as found:
        yield found


def ask(live: LiveServer, path: str, *, method: str = "GET", host: str | None = None) -> tuple[
    int, http.client.HTTPMessage, str
]:  # fmt: skip
    address = live.url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(address, timeout=240)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def test_what_it_answers(live: LiveServer) -> None:
    status, headers, text = ask(live, "/")
    assert status == 200
    checked(text)
    assert "data-refresh" in text
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert headers["Cache-Control"] == "no-store"
    status, _, part = ask(live, "/content?x=1")
    assert status == 200
    assert part.startswith("<header>")
    assert part in text
    status, headers, document = ask(live, "/api/report")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(document)["path"] == "large"
    status, headers, text = ask(live, "/", method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize("path", ["/etc/passwd", "/../x", "/page.js", "/content/x"])
def test_nothing_else(live: LiveServer, path: str) -> None:
    assert ask(live, path)[0] == 404


def test_other_methods(live: LiveServer) -> None:
    for method in ("POST", "DELETE", "PUT", "OPTIONS", "TRACE", "PATCH", "CONNECT", "BREW"):
        status, headers, text = ask(live, "/", method=method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "GET and HEAD" in text


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 403),
     ("127.0.0.1.evil.example:80", 403), ("[::1].evil", 403)],
)  # fmt: skip
def test_another_sites_name_gets_nothing(live: LiveServer, host: str, status: int) -> None:
    """A page elsewhere whose name was pointed here would read the log with the user's browser."""
    assert ask(live, "/api/report", host=host)[0] == status


def test_one_report_at_a_time_however_many_ask() -> None:
    running, most, made = 0, 0, 0

    def make() -> LogReport:
        nonlocal running, most, made
        running += 1
        made += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return REPORT

    with LiveServer(LogSite(make, refresh_ms=3_600_000), HERE, head_ms=UNHURRIED) as live:
        threads = [threading.Thread(target=ask, args=(live, "/content")) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (most, made) == (1, 1)


def test_what_fails_is_said_and_passes() -> None:
    broken = True

    def make() -> LogReport:
        if broken:
            raise StorageUnavailableError("the disk is away")
        return REPORT

    with LiveServer(LogSite(make), HERE, head_ms=UNHURRIED) as live:
        assert ask(live, "/content")[::2] == (503, "the disk is away\n")
        broken = False
        assert ask(live, "/content")[0] == 200


def test_it_ends_while_a_report_is_being_made() -> None:
    """Nobody waits for what a browser asked for."""
    asked, go, gave_up = threading.Event(), threading.Event(), list[str]()

    def make() -> LogReport:
        asked.set()
        if not go.wait(240):
            gave_up.append("nobody came")
        return REPORT

    before = set(threading.enumerate())
    live = LiveServer(LogSite(make), HERE, head_ms=UNHURRIED)
    live.start()


    def client_asks() -> None:
        with contextlib.suppress(ConnectionError):  # the server doesn't answer any more
            ask(live, "/")

    client = threading.Thread(target=client_asks)
    client.start()
    assert asked.wait(240)
    live.close()
    live.close()
    assert not go.is_set()
    assert not gave_up
    go.set()
    client.join()
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert "sparklog-ui" not in names


async def large_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(LARGE)(scope, receive, send)


def test_a_large_response_arrives_whole() -> None:
    with LiveServer(large_answer, HERE, head_ms=UNHURRIED) as live:
        assert ask(live, "/")[2] == LARGE.decode()


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RESPONSE_MS", 300)
    with LiveServer(large_answer, HERE, head_ms=UNHURRIED) as live:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(240)
            client.connect(("127.0.0.1", live.port))
            client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            (connection,) = until(lambda: [*live.connections])
            assert until(connection.transport.get_write_buffer_size) < 1 << 20
            until(lambda: not live.connections)
            received = 0
            with contextlib.suppress(ConnectionError):
                while part := client.recv(1 << 20):
                    received += len(part)
        assert received < len(LARGE)


def test_a_full_server_disconnects_the_client_that_is_silent_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "PATIENCE_MS", 0)
    site = LogSite(lambda: REPORT)
    with LiveServer(site, HERE, connections_max=2, head_ms=UNHURRIED) as live:
        silent = list[socket.socket]()
        for _ in range(2):
            silent.append(socket.create_connection(("127.0.0.1", live.port), 240))
            until(lambda: len(live.connections) == len(silent))
        assert ask(live, "/content")[0] == 200
        assert silent[0].recv(1) == b""
        silent[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[1].recv(1)
        for each in silent:
            each.close()


def test_it_survives_when_files_run_out(
    live: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    """No connection can be accepted for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client, held = socket.socket(), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 50, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(client.fileno()))
        client.connect(("127.0.0.1", live.port))
        until(lambda: "can't be accepted" in caplog.text)
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    client.settimeout(240)
    client.sendall(b"GET /content HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in client.recv(1 << 16)
    client.close()


def test_a_port_scan_is_no_warning(
    live: LiveServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        for sent in (b"", b"\0\0\r\n\r\n", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", live.port), 240) as client:
                client.sendall(sent)
        assert ask(live, "/content")[0] == 200
    assert caplog.messages == []
    assert capfd.readouterr() == ("", "")


def test_addresses() -> None:
    assert parse_ui_address("8080") == Address("127.0.0.1", 8080)
    assert parse_ui_address("0.0.0.0:0") == Address("0.0.0.0", 0)
    assert parse_ui_address("[::1]:99") == Address("::1", 99)
    for wrong in ("", "x", ":80", "h:", "1:70000", "-1", "::1:80", "https://h:1"):
        with pytest.raises(InvalidRequestError, match="--ui"):
            parse_ui_address(wrong)
    with (
        LiveServer(LogSite(lambda: REPORT), HERE) as live,
        pytest.raises(InvalidRequestError, match="choose another port"),
    ):
        LiveServer(LogSite(lambda: REPORT), Address("127.0.0.1", live.port))
    elsewhere = Address("192.0.2.1", 0)  # TEST-NET-1: nobody's address
    with pytest.raises(InvalidRequestError, match="choose another address"):
        LiveServer(LogSite(lambda: REPORT), elsewhere)
    with LiveServer(LogSite(lambda: REPORT), Address("127.0.0.1", 0)) as live:
        assert live.port
