"""The single broker that clients see: it leads every partition of a log."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.kafka.client import Client
from sparklog.kafka.messages import ErrorCode, Request, Response
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.partition_cache import PartitionCache
from sparklog.kafka.partitions import Partitions
from sparklog.kafka.security import Security
from sparklog.kafka.users import Right
from sparklog.log.log import Log

T = TypeVar("T")

TIMED_OUT = (
    ErrorCode.request_timed_out,
    "the request timed out while the change was in progress: check whether it was applied",
)


@dataclass(frozen=True, slots=True)
class Node:
    """Id and address of an endpoint of the log."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class Broker:
    """State that the endpoint's APIs share. Used on the event loop's thread, except `log`.

    `host` and `port`: the address that clients get, see `address`. `is_writable`: the log was
    opened for writing. Calls that use files, a store or a lock of the log go through `run`.
    """

    log: Log
    options: EndpointOptions
    clock: Clock
    cluster_id: str
    host: str
    port: int
    is_writable: bool
    loop: asyncio.AbstractEventLoop
    pool: ThreadPoolExecutor
    partitions: Partitions
    partition_cache: PartitionCache
    security: Security
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """Called off the event loop before the endpoint stops, to finish work in progress."""
    other_coordinator: Callable[[], Node | None] = lambda: None
    """Returns the other endpoint that coordinates the log's groups, if clients were sent there."""

    def address(self, client: Client) -> tuple[str, int]:
        """Return the host and port that a client should connect to.

        If the endpoint listens on all addresses and advertises no name, this is the local address
        of the client's own connection.
        """
        if self.host not in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound here
            return self.host, self.port
        # A dual-stack socket reports the address of an IPv4 client as ::ffff:1.2.3.4.
        return client.local_host.removeprefix("::ffff:"), self.port

    def is_authorized(self, client: Client, right: Right) -> bool:
        """Return True if a client has a right.

        Rights for a request are checked before it is handled (`authorization`).
        """
        return right in self.security.rights(client.principal.removeprefix("User:"))

    @property
    def node_id(self) -> int:
        return self.options.node_id

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Run `work(*given)` in the pool and return the result.

        Cancelling the call does not stop the work.
        """
        return await self.loop.run_in_executor(self.pool, work, *given)


async def run_with_timeout(
    broker: Broker,
    request: Request,
    make: Callable[[Any], Response],
    late: Callable[[Any], Response],
) -> Response:
    """Return the response of `make(body)`, or `late(body)` after the request's timeout (ms).

    Without a timeout, or with a negative timeout, the call waits for the change. A change that
    times out or is cancelled still completes, and clients that wait for the changed partitions are
    woken. Source: QuorumController's deadlines.
    """

    async def made() -> Response:
        try:
            return await broker.run(make, request.body)
        finally:  # also after an error: a part of the change may have been applied
            await broker.partitions.refresh()

    work = asyncio.ensure_future(made())
    work.add_done_callback(_retrieve)
    timeout_ms = getattr(request.body, "timeout", 0)
    done, _ = await asyncio.wait({work}, timeout=timeout_ms / 1000 if timeout_ms > 0 else None)
    return work.result() if done else late(request.body)


def _retrieve(work: "asyncio.Future[Response]") -> None:
    """Retrieve the exception of a future without a waiting caller, so that asyncio is silent."""
    if not work.cancelled():
        work.exception()
