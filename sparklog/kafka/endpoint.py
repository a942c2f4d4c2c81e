"""`Endpoint`: serves a log to Kafka's clients."""

import asyncio
import hashlib
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.kafka import (
    absences,
    configs,
    log_dirs,
    metadata,
    offset_listing,
    producer_states,
    record_deletion,
    replicas,
    topic_admin,
    topic_partitions,
)
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.connection import Connection
from sparklog.kafka.messages import Api
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.partition_memory import PartitionMemory
from sparklog.kafka.partitions import Partitions
from sparklog.log.log import Log
from sparklog.logdir.ledger import LEDGER_TOPIC

_AREAS: Final[tuple[Callable[[Broker], dict[Api, Served]], ...]] = (
    metadata.apis,
    topic_admin.apis,
    record_deletion.apis,
    configs.apis,
    log_dirs.apis,
    topic_partitions.apis,
    replicas.apis,
    producer_states.apis,
    offset_listing.apis,
    absences.apis,
)
"""What says what is served, an area each."""
_BACKLOG: Final = 512
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Endpoint:
    """Serves a log by Kafka's protocol from when it is made until `close`; a context manager.

    One thread does it, beside whatever this process does with the log. The log stays open: whoever
    opened it closes it, after the endpoint. Opened for reading it can be consumed from; opened to
    be written to, it takes what producers send.
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
        """`host`, `port`: where it listens; port 0 takes a free one. `options`: by Kafka's names.

        Raises: InvalidRequestError: an option, or an address that is taken or isn't here.
        """
        self.options = EndpointOptions.parse(options or {})
        self._log = log
        self._socket = _listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self.request_max_bytes = self.options.socket_request_max_bytes
        self.requests: Counter[tuple[Api, int]] = Counter()
        self._connections: set[Connection] = set()
        self._pool = ThreadPoolExecutor(
            self.options.num_io_threads, thread_name_prefix="sparklog-kafka-io"
        )
        self._loop = asyncio.new_event_loop()
        self._partitions = Partitions(log.view, self._loop, self._pool)
        self._broker = Broker(
            log=log, options=self.options, clock=clock, cluster_id=cluster_id_of(log),
            host=self.host, port=self.port, is_writable=is_writable(log), loop=self._loop,
            pool=self._pool, partitions=self._partitions, memory=PartitionMemory(log.view),
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
    def bootstrap_servers(self) -> str:
        """What clients are given to connect: `host:port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def _serve_all(self) -> dict[Api, Served]:
        served: dict[Api, Served] = {}
        for apis in _AREAS:
            served |= apis(self._broker)
        served[Api.API_VERSIONS] = metadata.api_versions(served)
        return served

    # --- connections -------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Take a connection in."""
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await self._loop.create_server(
            lambda: Connection(self, self._loop), sock=self._socket, backlog=_BACKLOG
        )
        await self._stopping.wait()
        server.close()
        for connection in list(self._connections):
            connection.close("the endpoint ends")
        await asyncio.sleep(0)  # what that cancels ends
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def close(self) -> None:
        """Stop serving; what is being committed is committed first. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._partitions.close()
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def cluster_id_of(log: Log) -> str:
    """Return the id of the cluster that clients see: the same for a log wherever it is served.

    A log dir is known by its ledger's topic id, a log in a store by its own id, and where there is
    neither (a broker's directory, an archive) by its path.
    """
    try:
        known = log.view.topic_id(LEDGER_TOPIC, 0)
    except UnknownTopicError:
        known = None
    if known is None:
        digest = hashlib.sha256(repr(log.home.identity).encode()).digest()
        known = topic_id_text(digest[:16])
    return known


def is_writable(log: Log) -> bool:
    """Tell whether the log was opened to be written to."""
    try:
        log.home.commits  # noqa: B018 - asking is what raises
    except InvalidRequestError:
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise InvalidRequestError(
            f"Kafka endpoint: can't listen on {host}:{port}: {error}; choose another port, or 0 "
            "for a free one"
        ) from None
    found.setblocking(False)
    return found
