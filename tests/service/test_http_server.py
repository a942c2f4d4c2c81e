"""HTTP beside a service's work: whoever goes away without a word leaves no trace in its output."""

import logging
import socket
import socketserver

import pytest

from sparklog.service.http_server import ThreadingServer
from sparklog.service.metrics.endpoint import Endpoint
from sparklog.tools.report.live import LiveReport
from tests.tools.test_report_page import large


class _Breaks(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        raise self.server.error  # type: ignore[attr-defined]


class _Server(ThreadingServer, socketserver.TCPServer):
    error: Exception

    def process_request(self, request, client_address) -> None:  # in this thread
        self.process_request_thread(request, client_address)


def served(error: Exception) -> None:
    """Let a connection end by this error."""
    with _Server(("127.0.0.1", 0), _Breaks) as server:
        server.error = error
        with socket.create_connection(server.server_address[:2], 10):
            server.handle_request()


@pytest.mark.parametrize("error", [ConnectionResetError(), BrokenPipeError(), TimeoutError()])
def test_a_client_that_goes_away_is_nothing(
    error: Exception, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        served(error)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_what_fails_here_is_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    served(RuntimeError("ours"))
    assert "Exception occurred" not in capfd.readouterr().err
    (found,) = caplog.records
    assert (found.name, found.levelname) == ("sparklog.service", "ERROR")
    assert "127.0.0.1" in found.getMessage()
    assert "ours" in (found.exc_text or "")


def test_both_pages_are_served_so() -> None:
    endpoint = Endpoint("127.0.0.1", 0, lambda: (), list)
    try:
        assert isinstance(endpoint._server, ThreadingServer)
    finally:
        endpoint.close()
    with LiveReport(lambda: large(topics=1, partitions=1, segments=1), ("127.0.0.1", 0)) as live:
        assert isinstance(live._server, ThreadingServer)
