"""HTTP beside a service's work: whoever goes away without a word leaves no trace in its output."""

import contextlib
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from sparklog.service import http_server
from sparklog.service.http_server import ThreadingServer
from sparklog.service.metrics.endpoint import Endpoint
from tests.waiting import until


class _Breaks(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        raise self.server.error  # type: ignore[attr-defined]


class _Server(ThreadingServer):
    error: Exception = ConnectionError()

    def process_request(self, request, client_address) -> None:  # in this thread
        self.process_request_thread(request, client_address)


def served(error: Exception) -> None:
    """Let a connection end by this error."""
    with _Server(("127.0.0.1", 0), _Breaks) as server:
        server.error = error
        with socket.create_connection(server.server_address[:2], 240):
            server.handle_request()


def said_by_us(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name.startswith("sparklog")]


@pytest.mark.parametrize("error", [ConnectionResetError(), BrokenPipeError(), TimeoutError()])
def test_a_client_that_goes_away_is_nothing(
    error: Exception, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        served(error)
    assert capfd.readouterr() == ("", "")
    assert said_by_us(caplog) == []


def test_what_fails_here_is_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    served(RuntimeError("ours"))
    assert "Exception occurred" not in capfd.readouterr().err
    (found,) = said_by_us(caplog)
    assert (found.name, found.levelname) == ("sparklog.service", "ERROR")
    assert "127.0.0.1" in found.getMessage()
    assert "ours" in (found.exc_text or "")


def test_the_end_waits_for_no_poll() -> None:
    server = _Server(("127.0.0.1", 0), _Breaks)
    polls = threading.Event()
    server.service_actions = polls.set  # type: ignore[method-assign]
    loop = threading.Thread(target=server.serve_forever, args=(3600,), daemon=True)
    loop.start()
    with socket.create_connection(server.server_address[:2], 240):
        assert polls.wait(240)  # it has taken the connection, and polls again
    end = threading.Thread(target=server.shutdown, daemon=True)
    end.start()
    end.join(60)
    assert not end.is_alive()
    loop.join()
    server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """It lets go of nobody for being slow, however busy this machine is."""
    found = Endpoint("127.0.0.1", 0, lambda: (), lambda: ([], {}))
    found._server._head_ms = 3_600_000
    yield found
    found.close()


def connected(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.port), 240)


def answered(endpoint: Endpoint) -> bytes:
    with connected(endpoint) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        return connection.recv(1 << 16)
    return b""


def test_metrics_are_served_to_so_many_at_once(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that say nothing cost a thread each: there are 64, then they are let go."""
    monkeypatch.setattr(http_server, "PATIENCE_MS", 7_200_000)
    silent = [connected(endpoint) for _ in range(70)]
    try:
        for connection in silent[64:]:
            assert connection.recv(1) == b""
        for connection in silent[:64]:
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1)
        assert answered(endpoint) == b""
        monkeypatch.setattr(http_server, "PATIENCE_MS", 0)  # now the oldest makes room
        until(lambda: b"200 OK" in answered(endpoint))  # once its thread has ended
        silent[0].settimeout(240)
        assert silent[0].recv(1) == b""
    finally:
        for connection in silent:
            connection.close()


def test_a_byte_now_and_then_is_no_request(endpoint: Endpoint) -> None:
    endpoint._server._head_ms = 300
    with connected(endpoint) as slow:
        slow.sendall(b"GET /he")
        ends = time.monotonic() + 240
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < ends:
                slow.sendall(b"x")
                slow.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if slow.recv(1) == b"":
                        break
        assert time.monotonic() < ends
    endpoint._server._head_ms = 3_600_000
    assert b"200 OK" in answered(endpoint)
