"""Changes that clients ask for: made in the pool, waited for as long as the request says."""

import asyncio
from collections.abc import Callable
from typing import Any

from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import ErrorCode, Request, Response

TIMED_OUT = (
    ErrorCode.request_timed_out,
    "the change is still under way when the request's timeout is over: look whether it came",
)


async def run_with_timeout(
    broker: Broker,
    request: Request,
    make: Callable[[Any], Response],
    late: Callable[[Any], Response],
) -> Response:
    """Return what `make(body)` answers; `late(body)` once the request's timeout (ms) is over.

    A timeout of 0 or less means to wait. Late or cancelled, the change is made all the same, and
    whoever follows the log is told. Source: QuorumController's deadlines.
    """

    async def made() -> Response:
        try:
            return await broker.run(make, request.body)
        finally:
            await broker.partitions.refresh()

    work = asyncio.ensure_future(made())
    work.add_done_callback(_retrieve)
    timeout_ms = getattr(request.body, "timeout", 0)
    done, _ = await asyncio.wait({work}, timeout=timeout_ms / 1000 if timeout_ms > 0 else None)
    return work.result() if done else late(request.body)


def _retrieve(work: "asyncio.Future[Response]") -> None:
    """Note an error that nobody may be waiting for."""
    if not work.cancelled():
        work.exception()
