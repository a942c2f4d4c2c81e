"""What clients take for a broker: one node that leads every partition, and the log behind it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.kafka.client import Client
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.partition_cache import PartitionCache
from sparklog.kafka.partitions import Partitions
from sparklog.kafka.security import Security
from sparklog.kafka.users import Right
from sparklog.log.log import Log

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Node:
    """Where an endpoint of the log listens."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class Broker:
    """The endpoint's parts, as its APIs use them. On the loop's thread, but for `log`.

    `host` and `port`: where clients are told to connect to, see `address`. `is_writable`: the log
    was opened to be written to. What touches files, a store or a lock of the log goes through
    `run`.
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
    memory: PartitionCache
    security: Security
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """Called when the endpoint ends, off the loop and before it: what is under way is finished."""
    other_coordinator: Callable[[], Node | None] = lambda: None
    """Returns the other endpoint that coordinates the log's groups, if clients were sent to one."""

    def address(self, client: Client) -> tuple[str, int]:
        """Return the host and the port by which a client is told to connect.

        Where we listen on every address, and no name is advertised, the one that it came by.
        """
        if self.host not in ("0.0.0.0", "::"):  # noqa: S104 - nothing is bound here
            return self.host, self.port
        return client.local_host.removeprefix("::ffff:"), self.port

    def is_authorized(self, client: Client, right: Right) -> bool:
        """Tell whether a client has a right; what its request as a whole takes was looked at."""
        return right in self.security.rights(client.principal.removeprefix("User:"))

    @property
    def node_id(self) -> int:
        """The one node's id."""
        return self.options.node_id

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Return what `work(*given)` does in the pool. Cancelled, it is still carried out."""
        return await self.loop.run_in_executor(self.pool, work, *given)
