"""The Prometheus endpoint: /metrics and /healthz from an HTTP server in daemon threads.

Each endpoint has its own registry, so that several logs of a process can have endpoints. A scrape
reads the log's files without a lock of the log; concurrent scrapes run in sequence.
"""

import json
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.metrics import Distribution, Kind, Metric, Sample
from sparklog.service.http_server import ThreadingServer
from sparklog.service.metrics.samples import by_metric

_LOGGER: Final = logging.getLogger("sparklog.service")
Read = Callable[[], Iterable[Sample]]
Health = Callable[[], tuple[list[str], Mapping[str, object]]]
"""Returns the faults (none if all is well), and further fields of /healthz."""


class _Server(ThreadingServer, WSGIServer):
    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of the host name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = 30
    server: _Server

    def parse_request(self) -> bool:
        """Parse a request, and end its deadline."""
        parsed = super().parse_request()
        self.server.request_received(self.connection)
        return parsed

    def log_message(self, format: str, *args: Any) -> None:
        _LOGGER.debug("metrics endpoint: %.500r", format % args)


class Endpoint:
    """Serves the samples of `read` over HTTP until `close`.

    Args:
        address: The address to listen on.
        port: The port; 0 takes a free port.
        read: Returns the samples.
        health: Returns the content of /healthz.

    Raises:
        InvalidRequestError: prometheus_client isn't installed, or the address is in use.
    """

    def __init__(self, address: str, port: int, read: Read, health: Health) -> None:
        with needed(InvalidRequestError):
            from prometheus_client import CollectorRegistry, make_wsgi_app
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Families(read))
        metrics = make_wsgi_app(registry)

        def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "")
            if path == "/healthz":
                return _healthz(health, start)
            if path in ("", "/", "/metrics"):
                found: Iterable[bytes] = metrics(environ, start)
                return found
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"unknown path: request /metrics or /healthz\n"]

        try:
            kind = _Server6 if ":" in address else _Server
            self._server = make_server(address, port, answer, kind, handler_class=_Quiet)
        except (OSError, OverflowError) as error:
            raise InvalidRequestError(
                f"metrics endpoint: can't listen on {address}:{port}: {error}; choose another "
                "port, or 0 for a free one"
            ) from None
        self.address, self.port = address, int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="sparklog-metrics", daemon=True
        )
        self._read = read
        self._first: threading.Thread | None = None
        self._thread.start()

    def prepare(self) -> None:
        """Read the samples once in the background: the first time takes 0.5 ms per partition."""
        self._first = threading.Thread(
            target=self._read_once, name="sparklog-metrics-first", daemon=True
        )
        self._first.start()

    def _read_once(self) -> None:
        try:
            for _ in self._read():
                pass
        except Exception:  # the next scrape reports it, too
            _LOGGER.exception("metrics endpoint %s", self.url)

    @property
    def url(self) -> str:
        """The URL for Prometheus."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving. Idempotent."""
        if self._first is not None and self._first is not threading.current_thread():
            self._first.join()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _healthz(health: Health, start: Any) -> Iterable[bytes]:
    wrong, more = health()
    start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"ok": not wrong, "wrong": wrong, **more}).encode() + b"\n"]


def text_of(samples: Iterable[Sample]) -> str:
    """Return samples in Prometheus' text format.

    Raises:
        InvalidRequestError: prometheus_client isn't installed.
    """
    with needed(InvalidRequestError):
        from prometheus_client import CollectorRegistry, generate_latest
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(lambda: samples))
    return generate_latest(registry).decode()


class Families:
    """A collector for prometheus_client."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterator[Any]:
        """Yield prometheus_client's metrics."""
        from prometheus_client.core import Metric as Family

        for metric, samples in by_metric(self._read()).items():
            is_counter = metric.kind is Kind.COUNTER  # the library adds the ending itself
            name = metric.name.removesuffix("_total") if is_counter else metric.name
            family = Family(name, metric.help, str(metric.kind))
            for sample in samples:
                _add(family, metric, sample)
            yield family


def _add(family: Any, metric: Metric, sample: Sample) -> None:
    labels = dict(zip(metric.labels, map(_clean, sample.labels), strict=True))
    value = sample.value
    if not isinstance(value, Distribution):
        family.add_sample(metric.name, labels, value)
        return
    if metric.kind is Kind.HISTOGRAM:
        for bound, count in (*value.at.items(), (float("inf"), value.count)):
            le = "+Inf" if bound == float("inf") else repr(float(bound))
            family.add_sample(f"{metric.name}_bucket", labels | {"le": le}, count)
    else:
        for quantile, found in value.at.items():
            family.add_sample(metric.name, labels | {"quantile": repr(quantile)}, found)
    family.add_sample(f"{metric.name}_count", labels, value.count)
    family.add_sample(f"{metric.name}_sum", labels, value.sum)


def _clean(text: str) -> str:
    """Replace lone surrogates, which names may contain and UTF-8 can't encode."""
    return text.encode(errors="replace").decode()
