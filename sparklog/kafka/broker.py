"""What clients take for a broker: one node that leads every partition, and the log behind it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.partition_memory import PartitionMemory
from sparklog.kafka.partitions import Partitions
from sparklog.log.log import Log

T = TypeVar("T")


@dataclass(slots=True)
class Broker:
    """The endpoint's parts, as its APIs use them. On the loop's thread, but for `log`.

    `host` and `port`: where clients are told to connect to. `is_writable`: the log was opened to be
    written to. What touches files, a store or a lock of the log goes through `run`.
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
    memory: PartitionMemory

    @property
    def node_id(self) -> int:
        """The one node's id."""
        return self.options.node_id

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Return what `work(*given)` does in the pool. Cancelled, it is still carried out."""
        return await self.loop.run_in_executor(self.pool, work, *given)
