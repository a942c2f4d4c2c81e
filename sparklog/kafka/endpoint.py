"""`Endpoint`: serves a log to Kafka clients."""

import asyncio
import hashlib
import logging
import resource
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from sparklog.clock import Clock, monotonic_ms, system_clock
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.kafka import (
    authentication,
    configs,
    fetching,
    groups,
    log_dirs,
    metadata,
    offset_listing,
    producer_states,
    producing,
    record_deletion,
    replicas,
    scram_credentials,
    topic_admin,
    topic_partitions,
    unsupported_apis,
)
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.connection import STALLED_MS, Connection
from sparklog.kafka.listeners import BACKLOG, listen
from sparklog.kafka.messages import Api
from sparklog.kafka.network_metrics import NetworkMetrics
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.partition_cache import PartitionCache
from sparklog.kafka.partitions import Partitions
from sparklog.kafka.quotas import ConnectionQuotas, LimitedLog, RequestMemory
from sparklog.kafka.security import Security
from sparklog.kafka.tls_handshake import TlsHandshake
from sparklog.log.log import Log, home_of, view_of
from sparklog.logdir.ledger import LEDGER_TOPIC
from sparklog.logdir.paths import split_path
from sparklog.metrics import meters
from sparklog.network.addresses import Address, resolve

_AREAS: Final[tuple[Callable[[Broker], dict[Api, Served]], ...]] = (
    metadata.apis,
    topic_admin.apis,
    record_deletion.apis,
    configs.apis,
    groups.apis,
    log_dirs.apis,
    topic_partitions.apis,
    replicas.apis,
    producer_states.apis,
    offset_listing.apis,
    unsupported_apis.apis,
    scram_credentials.apis,
    authentication.apis,
    producing.apis,
    fetching.apis,
)
"""The functions that return the handlers of each area of the protocol."""
_TICK_SECONDS: Final = 1.0
_REFRESH_TICKS: Final = 5
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Endpoint:
    """Serves a log to Kafka clients until the endpoint is closed; a context manager.

    The endpoint uses a thread of this process, which can use the log at the same time. Clients can
    consume from a log that was opened with mode "r", and also produce to a log that was opened with
    mode "rw". The caller closes the log after the endpoint.

    docs/kafka-apis.md lists the supported APIs and versions.

    Examples:
        >>> from confluent_kafka import Producer
        >>> from sparklog.kafka import Endpoint
        >>> with Endpoint(log) as endpoint:
        ...     producer = Producer({"bootstrap.servers": endpoint.bootstrap_servers})
        ...     producer.produce("flights", b"601", b"N1", partition=0)
        ...     undelivered = producer.flush(30)
        >>> log.read("flights").read_all().num_rows
        601
    """

    def __init__(
        self,
        log: Log,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        options: Mapping[str, object] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """Start serving.

        Args:
            log: The log to serve.
            host: The host name or address to listen on.
            port: The port to listen on; 0 selects a free port.
            options: Options of the endpoint by their Kafka names, as in docs/options.md.
            clock: The current time in milliseconds since the epoch; for tests.

        Raises:
            InvalidRequestError: An option is invalid, the address is in use or does not belong to
                this host, or other hosts can reach it without TLS and SASL (docs/kafka.md).
            StorageUnavailableError: The log cannot be read.
        """
        parsed = EndpointOptions.parse(options or {})
        self._server = EndpointServer(log, Address(host, port), parsed, clock)

    @property
    def host(self) -> str:
        """The host name or address that the endpoint listens on."""
        return self._server.address.host

    @property
    def port(self) -> int:
        """The port that the endpoint listens on."""
        return self._server.address.port

    @property
    def bootstrap_servers(self) -> str:
        """The value of `bootstrap.servers` for clients: `host:port`."""
        return str(self._server.advertised)

    def close(self) -> None:
        """Stop serving after the commits in progress. Closing a closed endpoint has no effect."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class EndpointServer:
    """The implementation of an endpoint: its thread, its connections and their shared state."""

    def __init__(self, log: Log, address: Address, options: EndpointOptions, clock: Clock) -> None:
        self.options = options
        self._log = log
        addresses = resolve(address.host)
        # Before listening: no client may connect to an endpoint without its protection.
        self.security = Security(self.options, address, addresses)
        try:
            self._sockets = listen(address, addresses)
        except InvalidRequestError:
            self.security.close()
            raise
        # Port 0 was replaced by a free port, which clients have to know.
        self.address = Address(address.host, int(self._sockets[0].getsockname()[1]))
        self.quotas = ConnectionQuotas(
            connections_max(self.options.max_connections),
            self.options.max_connections_per_ip,
            self.options.max_connection_creation_rate,
        )
        self.request_memory = RequestMemory(self.options.queued_max_request_bytes)
        self.meters = NetworkMetrics(meters(split_path(home_of(log).path)[0]))
        self.lines = LimitedLog(_LOGGER)
        self.outgoing_bytes = 0
        self.requests: Counter[tuple[Api, int]] = Counter()
        self._connections: set[Connection] = set()
        self._pool = ThreadPoolExecutor(
            self.options.num_io_threads, thread_name_prefix="sparklog-kafka-io"
        )
        self._loop = asyncio.new_event_loop()
        self._partitions = Partitions(view_of(log), self._loop, self._pool)
        self._broker = Broker(
            log=log, options=self.options, clock=clock, cluster_id=cluster_id_of(log),
            host=self.advertised.host, port=self.advertised.port, is_writable=is_writable(log),
            loop=self._loop, pool=self._pool, partitions=self._partitions,
            partition_cache=PartitionCache(view_of(log)), security=self.security,
        )  # fmt: skip
        self.served: Mapping[Api, Served] = self._serve_all()
        self.versions: Mapping[int, tuple[int, int]] = {
            int(api): each.versions for api, each in self.served.items()
        }
        self._is_closed = False
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="sparklog-kafka", daemon=True)
        self._thread.start()

    @property
    def advertised(self) -> Address:
        """The address that the endpoint tells clients to connect to."""
        return self.security.advertised or self.address

    def _serve_all(self) -> dict[Api, Served]:
        served: dict[Api, Served] = {}
        for apis in _AREAS:
            served |= apis(self._broker)
        served[Api.API_VERSIONS] = metadata.api_versions(served)
        return served

    # --- connections -------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Register a connection; return False if there is no room for it."""
        why = self.quotas.enter(connection.host, monotonic_ms())
        if why is not None:
            self.meters.closed("quota")
            self.lines.log(
                logging.WARNING, "a connection from %s is refused: %s", connection.host, why
            )
            return False
        connection.is_counted = True
        self.meters.opened.add()
        self.meters.connections.add(1)
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Remove a registered connection."""
        self._connections.discard(connection)
        self.quotas.leave(connection.host)
        self.meters.connections.add(-1)

    def _accept(self) -> asyncio.Protocol:
        connection = Connection(self, self._loop)
        context = self.security.context
        if context is None:
            return connection
        return TlsHandshake(connection, self, context, self._loop)

    async def _check_periodically(self) -> None:
        """Close idle and slow connections every second, and reload changed files."""
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            ticks += 1
            now_ms = monotonic_ms()
            for connection in list(self._connections):
                connection.check(now_ms)
            self._close_stalled(now_ms)
            if ticks % _REFRESH_TICKS == 0:
                try:
                    await self._loop.run_in_executor(self.security.pool, self.security.refresh)
                except Exception:  # the next refresh may succeed
                    _LOGGER.exception("users and certificates can't be reloaded")

    def _close_stalled(self, now_ms: float) -> None:
        """Close clients that do not receive, longest first, while responses use too much memory."""
        if self.outgoing_bytes <= self.options.queued_max_response_bytes:
            return
        stalled = [(each.stalled_ms(now_ms), each) for each in self._connections]
        for since_ms, connection in sorted(stalled, key=lambda pair: -pair[0]):
            if since_ms < STALLED_MS:
                return  # all others have received something since
            connection.end("the client does not receive its responses", reason="stalled")
            self.outgoing_bytes -= connection.drop()
            if self.outgoing_bytes <= self.options.queued_max_response_bytes:
                return

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        servers = [
            await self._loop.create_server(self._accept, sock=each, backlog=BACKLOG)
            for each in self._sockets
        ]
        checks = self._loop.create_task(self._check_periodically())
        await self._stopping.wait()
        checks.cancel()
        # Accept no new clients. Python 3.11 loses connections that a closed server accepts.
        for each in self._sockets:
            self._loop.remove_reader(each)
        for _ in range(5):  # a connection that is being accepted exists only some loop turns later
            for connection in list(self._connections):
                connection.end("the endpoint is stopping", reason="end")
            await asyncio.sleep(0)  # cancelled tasks end
        for server in servers:
            server.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0)  # connections that cancelled tasks closed release their sockets

    def close(self) -> None:
        """Stop serving after the commits in progress. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        # While the loop still runs: the committer and the coordinator finish their work, and
        # clients get the responses to their commits.
        for end in self._broker.at_end:
            end()
        self._partitions.close()  # its thread calls the loop
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._pool.shutdown()
        self.security.close()


def cluster_id_of(log: Log) -> str:
    """Return the cluster id that clients see, which is the same wherever a log is served.

    The id of a log dir is its ledger's topic id. Other homes use a hash: of the log id for a
    bucket, of the path for a broker's directory and an archive.
    """
    try:
        known = view_of(log).topic_id(LEDGER_TOPIC, 0)
    except UnknownTopicError:
        known = None
    if known is None:
        digest = hashlib.sha256(repr(home_of(log).identity).encode()).digest()
        known = topic_id_text(digest[:16])
    return known


def is_writable(log: Log) -> bool:
    """Return True if the log was opened for writing."""
    try:
        home_of(log).commits  # noqa: B018 - asking is what raises
    except InvalidRequestError:
        return False
    return True


def connections_max(wanted: int) -> int:
    """Return the maximum number of connections. The log needs open files as well."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = wanted if soft == resource.RLIM_INFINITY else max(1, soft // 2)
    if room < wanted:
        _LOGGER.info("max.connections=%d is limited to %d, half of `ulimit -n`", wanted, room)
    return min(wanted, room)
